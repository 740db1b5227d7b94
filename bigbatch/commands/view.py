"""`bigbatch view`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bigbatch.commands._options import DataDir
from bigbatch.errors import DONE


def command(
    sources: Annotated[
        list[Path], Parameter(help="a kept.npz, its folder, two of them to compare, or an .npz of features and labels")
    ],
    /,
    *,
    browser: Annotated[bool, Parameter(help="open the page at once")] = True,
    port: Annotated[int, Parameter(help="another is taken where this one is in use")] = 8642,
    host: Annotated[str, Parameter(help="who can reach it; the default is this machine alone")] = "127.0.0.1",
    runs_dir: Annotated[Path, Parameter(help="where runs are looked up whose accuracy is shown")] = Path("runs"),
    data_dir: DataDir = None,
    out: Annotated[Path | None, Parameter(help="where exports are written; else NAME.exports beside the file")] = None,
) -> int:
    """Look over a filter in the browser before anything is thrown away: eps, single samples, exports.

    Everything is saved as it is done, in NAME.view.jsonl beside the file, which itself is never changed.
    """
    from bigbatch.viewer.server import serve

    serve(sources, browser=browser, port=port, host=host, runs_dir=runs_dir, data_dir=data_dir, out=out)
    return DONE
