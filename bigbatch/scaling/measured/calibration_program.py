"""What two ranks run to calibrate the simulator: `torchrun ... -m bigbatch.scaling.measured.calibration_program TASK`.

Things none of which is a step that the simulator later predicts: all-reduces by size while nothing else runs; the
model's step without communication, by one rank alone and by both at once; that step again with one all-reduce under
way, to see what sending takes from computing where both need the same cores; copies in memory; and, in a start of its
own, Horovod's all-reduces by size, and that step beside its cycles, which find nothing to send.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch
import torch.distributed as dist
from pydantic import BaseModel

from bigbatch import engines, parts, whole
from bigbatch.engines import Engine
from bigbatch.run import Run
from bigbatch.scaling import timing
from bigbatch.scaling.measured.stepper import Silent, Stepper
from bigbatch.scaling.profile import Profile

MODULE = "bigbatch.scaling.measured.calibration_program"
_REPEATS = 20
_LOADED_REPEATS = 8
_FEWEST_REPEATS = 6
_SECONDS_A_SIZE = 0.4


class CalibrationTask(BaseModel):
    """`run` is a rank's step (see `stepper.run_of`), `bytes` the sizes of all-reduces, from the smallest on."""

    run: dict[str, Any]
    engine: Literal["ddp", "horovod"] = "ddp"  # horovod: the step beside its cycles, in which nothing is sent
    model: str
    rank_batch: int
    bytes: list[int]
    folder: str


class Loaded(BaseModel):
    """Steps with an all-reduce under way, in microseconds: medians of both. 0 bytes: nothing was sent."""

    bytes: int
    sent_us: float
    step_us: float


class Calibrated(BaseModel):
    """One round, medians of one rank in microseconds. Profiles are None on ranks that waited."""

    rank: int
    all_reduces: list[tuple[int, float, float]]  # bytes, wall, CPU
    alone: dict[str, Any] | None
    together: dict[str, Any]
    loaded: list[Loaded]
    copy_us: float = 0.0  # as many bytes as the largest all-reduce, from one place in memory to another


def calibrated(task: CalibrationTask) -> None:
    group = engines.start(parts.configure("engines", task.engine))
    try:
        torch.set_num_threads(1)
        found = _beside_cycles(task, group) if task.engine == "horovod" else _measured(task, group)
        whole.write_text(Path(task.folder) / f"{task.engine}-{group.rank}.json", found.model_dump_json())
        group.sum(torch.zeros(1))
    finally:
        group.stop()


def _measured(task: CalibrationTask, group: Engine) -> Calibrated:
    table = [_all_reduce_us(size, group) for size in task.bytes]
    stepper = Stepper(Run(**task.run), Silent(group.ranks, group.rank))
    alone = _profile(task, stepper, "alone") if group.rank == 0 else None
    _meet()
    together = _profile(task, stepper, "together")
    fitting = [size for size, wall_us, _ in table if wall_us < together.compute_us / 2]
    loaded = _loaded(stepper, [0, *group.broadcast(fitting)])  # ranks send the same
    return Calibrated(
        rank=group.rank,
        all_reduces=table,
        alone=None if alone is None else asdict(alone),
        together=asdict(together),
        loaded=loaded,
        copy_us=_copy_us(task.bytes[-1]),
    )


def _copy_us(size_bytes: int) -> float:
    source, target = torch.zeros(size_bytes // 4), torch.zeros(size_bytes // 4)
    _meet()  # both ranks at once: they share the memory's bandwidth
    times = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        target.copy_(source)
        times.append(1e6 * (time.perf_counter() - started))
    return median(times)


def _beside_cycles(task: CalibrationTask, group: Engine) -> Calibrated:
    stepper = Stepper(Run(**task.run), Silent(group.ranks, group.rank))
    group.sum(torch.zeros(1))
    table = [_all_reduce_us(size, group) for size in task.bytes]  # each with a wait for its cycle, and a question
    together = _profile(task, stepper, "beside Horovod's cycles")
    return Calibrated(rank=group.rank, all_reduces=table, alone=None, together=asdict(together), loaded=[])


def _profile(task: CalibrationTask, stepper: Stepper, how: str) -> Profile:
    steps = timing.taken(stepper, _REPEATS)
    return timing.profile(task.model, task.rank_batch, stepper, steps, f"timed on one thread, {how}")


def _all_reduce_us(size_bytes: int, group: Engine) -> tuple[int, float, float]:
    """The median of several, in wall and in CPU time of this rank's threads."""
    numbers = torch.zeros(max(1, size_bytes // 4))
    walls, cpus = [], []
    started = time.perf_counter()
    for number in range(1 + _REPEATS):
        late = time.perf_counter() - started > _SECONDS_A_SIZE and number > _FEWEST_REPEATS
        flag = torch.tensor([float(late)])
        group.sum(flag)  # ranks stop together, and begin each together
        if flag.item():
            break
        wall, cpu = time.perf_counter(), time.process_time()
        group.sum(numbers)
        walls.append(1e6 * (time.perf_counter() - wall))
        cpus.append(1e6 * (time.process_time() - cpu))
    return size_bytes, median(walls), median(cpus)


def _loaded(stepper: Stepper, sizes: Sequence[int]) -> list[Loaded]:
    """Sizes in turn, so that what disturbs for a while disturbs all of them alike; the first is 0."""
    numbers = {size: torch.zeros(max(1, size // 4)) for size in sizes}
    times: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    for _ in range(_LOADED_REPEATS):
        for size in sizes:
            _meet()
            times[size].append(_step_beside(stepper, numbers[size] if size else None))
    return [
        Loaded(
            bytes=size,
            sent_us=median(sent_us for sent_us, _ in times[size]),
            step_us=median(step_us for _, step_us in times[size]),
        )
        for size in sizes
    ]


def _step_beside(stepper: Stepper, numbers: torch.Tensor | None) -> tuple[float, float]:
    """A step that begins with an all-reduce: when that, and when the step was over."""
    ended: list[float] = []
    started = time.perf_counter()
    work = None if numbers is None else dist.all_reduce(numbers, async_op=True)
    if work is not None:
        work.get_future().add_done_callback(lambda _: ended.append(time.perf_counter()))
    stepper.step()
    step_us = 1e6 * (time.perf_counter() - started)
    if work is not None:
        work.wait()
    sent = ended[0] if ended else time.perf_counter()
    return 1e6 * (sent - started), step_us


def _meet() -> None:
    dist.all_reduce(torch.zeros(1))


if __name__ == "__main__":
    calibrated(CalibrationTask.model_validate_json(sys.argv[1]))
    os._exit(0)  # torch's threads are sometimes not ready for the interpreter to go (see cli.main)
