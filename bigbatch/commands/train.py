"""`bigbatch train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from bigbatch.commands._options import CheckpointMinutes, DataDir, Quiet, Ranks, RunsDir, Settings, Targets, Track
from bigbatch.errors import DIVERGED, DONE, FAILED, STOPPED

if TYPE_CHECKING:
    from bigbatch.artifacts.folder import Folder
    from bigbatch.artifacts.summary import Summary
    from bigbatch.run import Run
    from bigbatch.training.loop import TrainOptions


def command(
    recipe: str,
    *,
    settings: Settings = None,
    ranks: Ranks = 1,
    runs_dir: RunsDir = Path("runs"),
    data_dir: DataDir = None,
    checkpoint_minutes: CheckpointMinutes = 10.0,
    fresh: Annotated[bool, Parameter(negative="", help="delete what the run's folder has and start over")] = False,
    track: Track = None,
    targets: Targets = None,
    quiet: Quiet = False,
) -> int:
    """Train a recipe: a name from 'bigbatch list recipes', mypkg.mod:function, or a run.json.

    An unfinished run continues from its last checkpoint; a finished one is not run again.
    """
    from bigbatch.artifacts.folder import Folder
    from bigbatch.artifacts.targets import Target
    from bigbatch.engines import fit_run_to_ranks
    from bigbatch.recipes import load_run
    from bigbatch.training.loop import TrainOptions

    run = fit_run_to_ranks(load_run(recipe, settings or []), ranks)
    goals = [Target.parse(target) for target in targets or ()]
    options = TrainOptions(data_dir, checkpoint_minutes, fresh, quiet, track or (), goals)
    return train_and_print(run, Folder(runs_dir / run.folder_name), ranks, options)


def train_and_print(run: Run, folder: Folder, ranks: int, options: TrainOptions) -> int:
    """Train in this process or on ranks, print how it ended, and return the exit code."""
    from bigbatch.engines import env_rank, env_world_size
    from bigbatch.launch.processes import started_by_launcher
    from bigbatch.training.loop import train_in_folder
    from bigbatch.training.ranks import train_on_ranks

    if ranks > 1 and env_world_size() == 1:
        status = train_on_ranks(run, folder, ranks, options)
        return {"done": DONE, "diverged": DIVERGED, "stopped": STOPPED}.get(status or "", FAILED)
    finished_before = folder.status in ("done", "diverged") and not options.fresh
    summary = train_in_folder(run, folder, options)
    if env_rank() == 0:
        print(_describe(folder, summary) + (" (finished before; --fresh runs it again)" if finished_before else ""))
    if summary.diverged_at_step is None or started_by_launcher():
        return DONE  # our launcher reads the run's status; another code would make it restart the ranks
    return DIVERGED


def _describe(folder: Folder, summary: Summary) -> str:
    from bigbatch.output.progress import format_measure

    if summary.diverged_at_step is not None:
        step = summary.diverged_at_step
        return f"{folder.path}: diverged, the loss was not finite at step {step}; try a lower learning rate"
    crossings = "".join(
        f"; {target} after {reached['samples']:,.0f} samples, {reached['steps']:,.0f} steps"
        if reached
        else f"; {target} not reached"
        for target, reached in (summary.crossings or {}).items()
    )
    train_loss = "unknown" if summary.train_loss is None else f"{summary.train_loss:.4f}"
    return (
        f"{folder.path}: {format_measure(summary)}, train loss {train_loss}, "
        f"{summary.seconds:.1f} s, {summary.samples_per_second:,.0f} samples/s{crossings}"
    )
