"""`bigbatch train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bigbatch.commands._options import CheckpointMinutes, DataDir, Quiet, Ranks, RunsDir, Settings, Track


def command(
    recipe: str,
    *,
    settings: Settings = None,
    ranks: Ranks = 1,
    runs_dir: RunsDir = Path("runs"),
    data_dir: DataDir = None,
    checkpoint_minutes: CheckpointMinutes = 10.0,
    fresh: Annotated[bool, Parameter(negative="", help="forget what the run's folder has and start over")] = False,
    track: Track = None,
    quiet: Quiet = False,
) -> int:
    """Train a recipe: a name from 'bigbatch list recipes', mypkg.mod:function, or a run.json.

    An unfinished run goes on from its last checkpoint; a finished one is not run again.
    """
    from bigbatch.artifacts.folder import Folder
    from bigbatch.engines import fit_run
    from bigbatch.launch.processes import run_here_or_on_ranks
    from bigbatch.recipes import load_run

    run = fit_run(load_run(recipe, settings or []), ranks)
    folder = Folder(runs_dir / run.folder_name)
    return run_here_or_on_ranks(run, folder, ranks, data_dir, checkpoint_minutes, fresh, quiet, track or ())
