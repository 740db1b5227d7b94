"""`bigbatch demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bigbatch.commands._options import Quiet, RunsDir
from bigbatch.errors import DONE


def command(
    *,
    runs_dir: RunsDir = Path("runs"),
    out: Annotated[Path, Parameter(help="the page that is written")] = Path("demo.html"),
    tune: Annotated[
        bool, Parameter(negative="", help="repeat how the recipe's lr was chosen at the small batch, and stop")
    ] = False,
    quiet: Quiet = False,
) -> int:
    """Show on the embedded digits what a 32 times larger batch costs and what wins it back, in a minute.

    A table and a page, whose address is printed at the end. Nothing is downloaded.
    """
    from bigbatch import demo

    if tune:
        demo.tune(runs_dir, quiet)
    else:
        demo.show(runs_dir, out, quiet)
    return DONE
