"""`bigbatch resume`."""

from __future__ import annotations

from pathlib import Path

from bigbatch.commands._options import CheckpointMinutes, DataDir, Quiet, Ranks, Track
from bigbatch.commands.train import train_and_print


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
    from bigbatch.engines import fit_run_to_ranks
    from bigbatch.training.loop import TrainOptions

    known = Folder(folder)
    options = TrainOptions(data_dir, checkpoint_minutes, fresh=False, quiet=quiet, track=track or ())
    return train_and_print(fit_run_to_ranks(known.run(), ranks), known, ranks, options)
