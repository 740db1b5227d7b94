"""A training on several ranks of this machine, which our launcher starts."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext

from bigbatch import batch_sizes, trackers
from bigbatch.artifacts.folder import Folder, Status
from bigbatch.engines import horovod
from bigbatch.errors import Problem
from bigbatch.launch.processes import Process, run_ranks
from bigbatch.run import Run
from bigbatch.training.loop import TrainOptions, record_crossings


def train_on_ranks(run: Run, folder: Folder, ranks: int, options: TrainOptions) -> Status | None:
    """Start ranks, wait for them and return the run's status.

    If a rank dies, all ranks are restarted together from the last checkpoint.
    """
    trackers.check_installed(options.track)
    if isinstance(run.engine, horovod.Config):
        horovod.check(run.engine)
    largest = batch_sizes.largest(run.global_batch)
    if largest % ranks:
        divisors = [count for count in range(1, ranks + 1) if largest % count == 0]
        fitting = max(largest - largest % ranks, ranks)
        raise Problem(
            f"global_batch {largest} does not divide over {ranks} ranks: use --ranks {divisors[-1]}, "
            f"or a run with global_batch {fitting}"
        )
    with folder.lock():
        pass  # another training of this folder is found before anything is moved
    with folder.move_aside() if options.fresh else nullcontext():
        with folder.lock():
            folder.create(run)
        status = _resume_on_ranks(run.engine.name, folder, ranks, options)
    if options.targets and status in ("done", "diverged"):
        record_crossings(folder, options.targets)
    return status


def _resume_on_ranks(engine: str, folder: Folder, ranks: int, options: TrainOptions) -> Status | None:
    stop_requested = False

    def stop(process: Process, number: int) -> None:
        """The first signal goes to one rank, which makes all of them stop; the next ends all at once."""
        nonlocal stop_requested
        trainer = folder.lock_holder_pid()
        if trainer is None or stop_requested:
            process.terminate()
        else:
            os.kill(trainer, signal.SIGTERM)
        stop_requested = True

    arguments = [
        *("resume", str(folder.path), "--checkpoint-minutes", str(options.checkpoint_minutes)),
        *(("--data-dir", str(options.data_dir)) if options.data_dir else ()),
        *(("--quiet",) if options.quiet else ()),
        *(f"--track={name}" for name in options.track),
    ]
    code, messages = run_ranks(engine, arguments, ranks, stop)
    if folder.status == "failed" and messages:
        raise Problem("; ".join(messages))
    if code and not messages and folder.status not in ("done", "diverged"):
        messages = [
            f"the ranks ended before the training did (see above): 'bigbatch resume {folder.path} --ranks {ranks}' "
            "continues from the last checkpoint"
        ]
    for message in messages:
        print(f"bigbatch: {message}", file=sys.stderr)
    return folder.status
