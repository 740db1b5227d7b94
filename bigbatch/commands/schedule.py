"""`bigbatch schedule`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from bigbatch.commands._options import Settings
from bigbatch.errors import DONE, Problem
from bigbatch.output.formatting import format_value, print_table

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
    """Print and plot the learning rate and the global batch of a recipe over its epochs, without training.

    With --set scale_batch=64 it also prints what the scaling rule of the optimizer changes, and why.
    """
    from bigbatch import schedules
    from bigbatch.recipes import load_run
    from bigbatch.run import split_scaling

    run = load_run(recipe, settings or [])
    unscaled, scaling = split_scaling(settings or [])
    if scaling:
        rows = _scaling_rows(load_run(recipe, unscaled), run, scaling.get("scaling_rule"))
        print_table(["scaled", "before", "after", "why"], rows)
    if run.epochs is None:
        raise Problem(f"a budget of {run.steps} steps is unknown in epochs before data is loaded: use --set epochs=...")
    schedules.check_plan(run, run.epochs)
    curve = schedules.plan(run, run.epochs, points)
    lines = ((f"{point.epochs:.2f}", f"{point.lr:.6g}", point.global_batch) for point in curve)
    print_table(["epoch", "lr", "global batch"], lines, title=f"{run.name}: {run.epochs:g} epochs")
    if plot:
        _plot_schedule(run, run.epochs, plot)
        print(plot)
    return DONE


def _scaling_rows(before: Run, after: Run, rule: Any) -> Iterator[tuple[str, ...]]:
    """Yield what a scaling rule changed, and what the schedule scales by itself."""
    from bigbatch.run import Change
    from bigbatch.scaling_rules import peak_at

    batches = [run.global_batch.global_batch for run in (before, after)]  # type: ignore[attr-defined]
    changes = before.changes_at_batch(batches[1], rule)
    (old_lr, old_warmup), (new_lr, new_warmup) = map(peak_at, (before, after), batches)
    fields, why = " ".join(change.field for change in changes), f"schedule '{after.schedule.name}'"
    if old_lr != new_lr and "optimizer.lr" not in fields:
        changes.append(Change("lr at the peak", old_lr, new_lr, why))
    if old_warmup != new_warmup and "schedule.warmup" not in fields:
        changes.append(Change("warm-up epochs", old_warmup, new_warmup, why))
    for field, *values, why in changes:
        texts = (
            ", ".join(map(format_value, value)) if isinstance(value, tuple) else format_value(value) for value in values
        )
        yield field, *texts, why


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
