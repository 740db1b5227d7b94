"""What every rank runs: `python -m bigbatch.scaling.measured.rank_program TASK`, under torchrun, horovodrun or alone.

TASK is the JSON of a `Task`. Each rank takes warm-up steps, timed steps and steps with notes, one thread each, and
writes one JSON, a `Record`: into the task's folder, or, where ranks share no folder, as a line on its output.

Before and after the timed steps it takes, where asked to, steps of a model of its own in which nothing is sent: what a
simulator is given to start from, as the same step may take a fifth longer in the next process.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from bigbatch import engines
from bigbatch.artifacts import atomic
from bigbatch.engines import Engine, ddp
from bigbatch.run import Run
from bigbatch.scaling.measured import interface
from bigbatch.scaling.measured.notes import Noted, noted
from bigbatch.scaling.measured.stepper import Silent, Stepper
from bigbatch.scaling.measured.unsent import Unsent

MODULE = "bigbatch.scaling.measured.rank_program"
MARK = "bigbatch-rank-record "  # before a record on the output


class Task(BaseModel):
    """What to do: a run (see `stepper.run_of`) and how many steps of each kind."""

    run: dict[str, Any]
    warmup_steps: int = 3
    timed_steps: int = 10
    noted_steps: int = 3
    silent_steps: int = 0
    folder: str | None = None  # None: records go to the output


class Record(BaseModel):
    """What one rank measured. The timed steps have wall and CPU seconds only; CPU is that of all its threads."""

    rank: int
    ranks: int
    host: str
    wall_s: list[float]
    cpu_s: list[float]
    silent_s: list[float] = []  # steps in which nothing is sent, begun by all ranks at once
    noted: list[Noted]
    bucket_bytes: list[int]
    load_1min: float


def measured(task: Task) -> Record:
    import torch

    run = Run(**task.run)
    load_1min = os.getloadavg()[0]  # before these steps add to it
    interface.choose()
    engine = engines.start(run.engine)
    try:
        torch.set_num_threads(1)
        stepper = Stepper(run, engine)
        silent = Stepper(run, _silent(run, engine)) if task.silent_steps else None
        for _ in range(task.warmup_steps):
            stepper.step()
            if silent:
                silent.step()
        silent_s = [_timed_silently(silent, stepper) for _ in range(task.silent_steps // 2) if silent]
        stepper.meet()
        times = [_timed(stepper) for _ in range(task.timed_steps)]
        silent_s += [_timed_silently(silent, stepper) for _ in range(task.silent_steps // 2) if silent]
        record = Record(
            rank=engine.rank,
            ranks=engine.world_size,
            host=socket.gethostname(),
            wall_s=[wall_s for wall_s, _ in times],
            cpu_s=[cpu_s for _, cpu_s in times],
            silent_s=silent_s,
            noted=noted(stepper, task.noted_steps),
            bucket_bytes=_bucket_bytes(stepper.gradient.forward.wrapped),
            load_1min=load_1min,
        )
        _hand_in(record, task, stepper)
        return record
    finally:
        engine.stop()


def _timed(stepper: Stepper) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    stepper.step()
    return time.perf_counter() - wall, time.process_time() - cpu


def _silent(run: Run, engine: Engine) -> Engine:
    """All that this engine does on a rank, but for its messages; Horovod's cycles go on beside it."""
    if isinstance(run.engine, ddp.Config):
        return Unsent(engine.world_size, engine.rank, run.engine)
    return Silent(engine.world_size, engine.rank)


def _timed_silently(silent: Stepper, stepper: Stepper) -> float:
    stepper.meet()
    wall_s, _ = _timed(silent)
    return wall_s


def _bucket_bytes(wrapped: Any) -> list[int]:
    """DDP's buckets as it has rebuilt them after the first step; none for other engines."""
    if not hasattr(wrapped, "_get_ddp_logging_data"):
        return []
    known = wrapped._get_ddp_logging_data()
    sizes = known.get("rebuilt_bucket_sizes") or known.get("bucket_sizes") or ""
    return [int(size) for size in str(sizes).split(",") if size.strip()]


def _hand_in(record: Record, task: Task, stepper: Stepper) -> None:
    text = record.model_dump_json()
    if task.folder is not None:
        atomic.write_text(Path(task.folder) / f"rank-{record.rank}.json", text)
    for turn in range(record.ranks if task.folder is None else 0):
        if turn == record.rank:  # long lines of several ranks would run into each other
            print(MARK + text, flush=True)
        stepper.meet()


if __name__ == "__main__":
    measured(Task.model_validate_json(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # torch's threads are sometimes not ready for the interpreter to go (see cli.main)
