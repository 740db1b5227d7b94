"""`bigbatch resume`."""

from __future__ import annotations

from pathlib import Path

from bigbatch.commands._options import CheckpointMinutes, DataDir, Quiet, Ranks, Track


def command(
    folder: Path,
    *,
    ranks: Ranks = 1,
    data_dir: DataDir = None,
    checkpoint_minutes: CheckpointMinutes = 10.0,
    track: Track = None,
    quiet: Quiet = False,
) -> int:
    """Continue the run in a folder from its last checkpoint, on any number of ranks."""
    from bigbatch.artifacts.folder import Folder
    from bigbatch.engines import fit_run
    from bigbatch.launch.processes import run_here_or_on_ranks

    known = Folder(folder)
    return run_here_or_on_ranks(
        fit_run(known.run(), ranks), known, ranks, data_dir, checkpoint_minutes, False, quiet, track or ()
    )
