"""`bigbatch schedule`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from bigbatch.commands._options import Settings
from bigbatch.errors import DONE, Problem

if TYPE_CHECKING:
    from bigbatch.run import Run

_POINTS_OF_A_PLOT = 500


def command(
    recipe: str,
    *,
    settings: Settings = None,
    plot: Annotated[Path | None, Parameter(help="also draw it into this file (.png, .svg or .pdf)")] = None,
    points: Annotated[int, Parameter(validator=Number(gte=1), help="rows to print")] = 20,
) -> int:
    """Print and plot the learning rate and the global batch of a recipe over its epochs, without training."""
    from rich.console import Console

    from bigbatch import schedules
    from bigbatch.output.formatting import terminal_table
    from bigbatch.recipes import load_run

    run = load_run(recipe, settings or [])
    if run.epochs is None:
        raise Problem(f"a budget of {run.steps} steps is unknown in epochs before data is loaded: use --set epochs=...")
    schedules.check_plan(run, run.epochs)
    rows = (
        (f"{point.epochs:.2f}", f"{point.lr:.6g}", str(point.global_batch))
        for point in schedules.plan(run, run.epochs, points)
    )
    Console().print(terminal_table(["epoch", "lr", "global batch"], rows, title=f"{run.name}: {run.epochs:g} epochs"))
    if plot:
        _plot_schedule(run, run.epochs, plot)
        print(plot)
    return DONE


def _plot_schedule(run: Run, total_epochs: float, path: Path) -> None:
    """Draw the learning rate above the global batch."""
    from bigbatch import schedules
    from bigbatch.output.figures import Chart

    curve = schedules.plan(run, total_epochs, _POINTS_OF_A_PLOT)
    epochs = [point.epochs for point in curve]
    chart = Chart(run.name, "epoch", "lr", size_inches=(7.0, 5.0))
    chart.line("learning rate", epochs, [point.lr for point in curve])
    chart.axes.set_ylim(bottom=0)
    panel = chart.add_panel("global batch")
    panel.step(epochs, [point.global_batch for point in curve], where="mid")
    panel.set_ylim(bottom=0)
    chart.save_image(path)
