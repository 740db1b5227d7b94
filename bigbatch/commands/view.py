"""`bigbatch view`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bigbatch.commands._options import DataDir
from bigbatch.errors import DONE


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """How the page is served."""

    browser: Annotated[bool, Parameter(help="open the page in the browser")] = True
    port: Annotated[int, Parameter(help="another one is taken where this one is in use")] = 8642
    host: Annotated[
        str, Parameter(help="the address to listen on; the default is reachable from this machine only")
    ] = "127.0.0.1"
    runs_dir: Annotated[Path, Parameter(help="the folder of the runs whose accuracy is shown")] = Path("runs")
    data_dir: DataDir = None
    out: Annotated[Path | None, Parameter(help="the folder for exports; default: NAME.exports beside the file")] = None


_DEFAULTS = ViewOptions()


def command(
    sources: Annotated[
        list[Path], Parameter(help="a kept.npz, its folder, two of them to compare, or an .npz of features and labels")
    ],
    /,
    *,
    options: ViewOptions = _DEFAULTS,
) -> int:
    """Check a filter in the browser before anything is dropped: eps, single samples, exports.

    Every change is saved at once in NAME.view.jsonl beside the file, which itself is never changed.
    """
    from bigbatch.viewer.server import ServerOptions, serve

    serve(
        sources,
        ServerOptions(
            host=options.host,
            port=options.port,
            runs_dir=options.runs_dir,
            data_dir=options.data_dir,
            out=options.out,
            announce=True,
        ),
        browser=options.browser,
    )
    return DONE
