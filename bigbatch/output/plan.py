"""What a run intends: its learning rate and its global batch over time, before anything is trained."""

from __future__ import annotations

from pathlib import Path

from bigbatch import schedules
from bigbatch.errors import Problem
from bigbatch.run import Run

_POINTS_OF_A_CURVE = 500


def show(run: Run, points: int) -> None:
    """A table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    if points < 1:
        raise Problem(f"--points {points} makes no table: use 1 or more")
    total_epochs = _total_epochs(run)
    schedules.check_plan(run, total_epochs)
    table = Table("epoch", "lr", "global batch", title=f"{run.name}: {total_epochs:g} epochs", box=None)
    for point in schedules.plan(run, total_epochs, points):
        table.add_row(f"{point.epochs:.2f}", f"{point.lr:.6g}", str(point.global_batch))
    Console().print(table)


def draw(run: Run, path: Path) -> None:
    """The same as a picture."""
    try:
        import matplotlib
    except ImportError as error:
        raise Problem("drawing needs matplotlib: pip install 'bigbatch[plot]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    if path.suffix not in (".png", ".svg", ".pdf"):
        raise Problem(f"--plot {path} is no picture: name a file that ends in .png, .svg or .pdf")
    curve = schedules.plan(run, _total_epochs(run), _POINTS_OF_A_CURVE)
    figure, (lr_axes, batch_axes) = pyplot.subplots(2, sharex=True, figsize=(7, 5), layout="constrained")
    lr_axes.plot([point.epochs for point in curve], [point.lr for point in curve])
    lr_axes.set(ylabel="lr", title=run.name, ylim=(0, None))
    batch_axes.step([point.epochs for point in curve], [point.global_batch for point in curve], where="mid")
    batch_axes.set(ylabel="global batch", xlabel="epoch", ylim=(0, None))
    try:
        figure.savefig(path)
    except OSError as error:
        raise Problem(f"--plot {path} could not be written ({error.strerror}): choose another place") from error
    finally:
        pyplot.close(figure)


def _total_epochs(run: Run) -> float:
    if run.epochs is None:
        raise Problem(
            f"a budget of {run.steps} steps has no length in epochs before the data is seen: use --set epochs=..."
        )
    return run.epochs
