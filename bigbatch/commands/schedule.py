"""`bigbatch schedule`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bigbatch.commands._options import Settings
from bigbatch.errors import DONE


def command(
    recipe: str,
    *,
    settings: Settings = None,
    plot: Annotated[Path | None, Parameter(help="also draw it into this file (.png, .svg or .pdf)")] = None,
    points: Annotated[int, Parameter(help="rows to print")] = 20,
) -> int:
    """Print and plot the learning rate and the global batch of a recipe over its epochs, without training."""
    from bigbatch.output.plan import draw, show
    from bigbatch.recipes import load_run

    run = load_run(recipe, settings or [])
    show(run, points)
    if plot:
        draw(run, plot)
        print(plot)
    return DONE
