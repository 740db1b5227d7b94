"""What two ranks run to calibrate the simulator: `torchrun ... -m bigbatch.scaling.measured.calibration_program TASK`.

Things none of which is a step that the simulator later predicts: the model's step without communication, by one rank
alone, as it is and wrapped by DDP, and by both at once; all-reduces by size, after such steps, when nothing computes
but nothing is warm from the one before either; the same beside steps, to see how long they then take and what CPU time;
copies in memory. In a start of its own, Horovod's all-reduces, and what its cycles take that find nothing to send.
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

from bigbatch import engines, parts
from bigbatch.artifacts import atomic
from bigbatch.engines import Engine, ddp
from bigbatch.engines.horovod import Horovod
from bigbatch.run import Run
from bigbatch.scaling import layer_timing
from bigbatch.scaling.layer_timing import StepTimes
from bigbatch.scaling.measured.stepper import Silent, Stepper
from bigbatch.scaling.measured.unsent import Unsent

MODULE = "bigbatch.scaling.measured.calibration_program"
_REPEATS = 20
_SENT_REPEATS = 8
_SEVERAL = 8
_FEWEST_REPEATS = 6
_SECONDS_A_SIZE = 0.4
_POLL_SECONDS = 2e-5  # Horovod itself waits at full speed, and takes the core from its own thread now and then


class CalibrationTask(BaseModel):
    """`run` is a rank's step (see `stepper.run_of`), `bytes` the sizes of all-reduces, from the smallest on."""

    run: dict[str, Any]
    engine: Literal["ddp", "horovod"] = "ddp"
    model: str
    rank_batch: int
    bytes: list[int]
    folder: str


class Loaded(BaseModel):
    """An all-reduce while the rank has other work, in microseconds: medians. CPU is that of other threads."""

    bytes: int
    sent_us: float | None = None  # as a whole; of Horovod's it is not known
    cpu_us: float


class Calibrated(BaseModel):
    """One round of one rank, in microseconds. Profiles are None on ranks that waited."""

    rank: int
    all_reduces: dict[int, list[float]]  # by bytes: each time that it was done, on all ranks at once
    loaded: list[Loaded]
    alone: dict[str, Any] | None = None
    alone_in_ddp: dict[str, Any] | None = None  # with DDP's hooks and buckets, which are not sent
    together_us: list[float] = []  # steps that both ranks began at once
    copy_us: float = 0.0  # as many bytes as the largest all-reduce, from one place in memory to another
    cycles_share: float = 0.0  # of a core, taken by Horovod's cycles beside steps


def calibrated(task: CalibrationTask) -> None:
    # no fusion: each tensor is an all-reduce of its own
    options = {"name": "horovod", "fusion_mb": 0} if task.engine == "horovod" else {"name": "ddp"}
    group = engines.start(parts.configure("engines", options))
    try:
        torch.set_num_threads(1)
        found = _horovods(task, group) if task.engine == "horovod" else _torchs(task, group)
        atomic.write_text(Path(task.folder) / f"{task.engine}-{group.rank}.json", found.model_dump_json())
        group.sum(torch.zeros(1))
    finally:
        group.stop()


def _torchs(task: CalibrationTask, group: Engine) -> Calibrated:
    plain = Stepper(Run(**task.run), Silent(group.world_size, group.rank))
    in_ddp = Stepper(Run(**task.run), Unsent(group.world_size, group.rank, ddp.Config(name="ddp")))
    alone, alone_in_ddp, together = _steps_in_turn(group, plain, in_ddp)
    table = _after_steps(plain, task.bytes)
    fitting = [size for size, times in table.items() if median(times) < median(together) / 2]  # over before a step is
    fitting = group.broadcast(fitting)  # ranks send the same

    def profile(stepper: Stepper, steps: list[StepTimes]) -> dict[str, Any] | None:
        if not steps:
            return None
        return asdict(layer_timing.median_profile(task.model, task.rank_batch, stepper, steps, "timed on one thread"))

    return Calibrated(
        rank=group.rank,
        all_reduces=table,
        loaded=_beside_steps(plain, fitting),
        alone=profile(plain, alone),
        alone_in_ddp=profile(in_ddp, alone_in_ddp),
        together_us=together,
        copy_us=_copy_us(task.bytes[-1]),
    )


def _steps_in_turn(
    group: Engine, plain: Stepper, in_ddp: Stepper
) -> tuple[list[StepTimes], list[StepTimes], list[float]]:
    """By rank 0 alone, the same in DDP, and by both at once: in turn, so that what disturbs disturbs all of them."""
    alone, alone_in_ddp, together = [], [], []
    for stepper in (plain, in_ddp):  # all ranks: DDP's buckets are agreed on after its first step
        layer_timing.time_steps(stepper, 1)
    for _ in range(_REPEATS):
        if group.rank == 0:
            alone.append(layer_timing.time_step(plain))
            alone_in_ddp.append(layer_timing.time_step(in_ddp))
        _meet()
        together.append(layer_timing.time_step(plain).step_us)
        _meet()
    return alone, alone_in_ddp, together


def _copy_us(size_bytes: int) -> float:
    source, target = torch.ones(size_bytes // 4), torch.ones(size_bytes // 4)  # memory that is there already
    _meet()  # both ranks at once: they share the memory's bandwidth
    times = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        target.copy_(source)
        times.append(1e6 * (time.perf_counter() - started))
    return median(times)


def _after_steps(stepper: Stepper, sizes: Sequence[int]) -> dict[int, list[float]]:
    # written to once: the system gives memory only then, which buckets have had for long
    numbers = {size: torch.empty(max(1, size // 4)).zero_() for size in sizes}
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(_SENT_REPEATS):
        for size in sizes:
            stepper.step()
            started = time.perf_counter()
            dist.all_reduce(numbers[size])
            times[size].append(1e6 * (time.perf_counter() - started))
    return times


def _beside_steps(stepper: Stepper, sizes: Sequence[int]) -> list[Loaded]:
    """Sizes in turn, so that what disturbs for a while disturbs all of them alike."""
    numbers = {size: torch.zeros(max(1, size // 4)) for size in sizes}
    times: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    for _ in range(_SENT_REPEATS):
        for size in sizes:
            _meet()
            times[size].append(_beside_a_step(stepper, numbers[size]))
    return [
        Loaded(
            bytes=size,
            sent_us=median(sent_us for sent_us, _ in times[size]),
            cpu_us=median(cpu_us for _, cpu_us in times[size]),
        )
        for size in sizes
    ]


def _beside_a_step(stepper: Stepper, numbers: torch.Tensor) -> tuple[float, float]:
    """A step that begins with an all-reduce: when that was over, and what other threads worked."""
    ended: list[float] = []
    cpu_us, started = _others_cpu_us(), time.perf_counter()
    work = dist.all_reduce(numbers, async_op=True)
    assert work is not None
    work.get_future().add_done_callback(lambda _: ended.append(time.perf_counter()))
    stepper.step()
    work.wait()
    sent = ended[0] if ended else time.perf_counter()
    return 1e6 * (sent - started), _others_cpu_us() - cpu_us


def _others_cpu_us() -> float:
    """CPU time of all threads of this process but this one."""
    return 1e6 * (time.process_time() - time.thread_time())


def _horovods(task: CalibrationTask, group: Engine) -> Calibrated:
    assert isinstance(group, Horovod)
    stepper = Stepper(Run(**task.run), Silent(group.world_size, group.rank))
    layer_timing.time_steps(stepper, 1)
    shares = []
    for _ in range(_REPEATS):
        cpu_us, started = _others_cpu_us(), time.perf_counter()
        stepper.step()
        shares.append((_others_cpu_us() - cpu_us) / (1e6 * (time.perf_counter() - started)))
    several = {size: _one_of_several(size, group) for size in task.bytes}
    return Calibrated(
        rank=group.rank,
        all_reduces={size: [wall_us] for size, (wall_us, _) in several.items()},
        loaded=[Loaded(bytes=size, cpu_us=cpu_us) for size, (_, cpu_us) in several.items()],
        cycles_share=median(shares),
    )


def _one_of_several(size_bytes: int, group: Horovod) -> tuple[float, float]:
    """Wall and CPU time of one more in the same cycle: the first waits for the cycle, and for what ranks agree on."""
    (one_us, one_cpu_us), (several_us, several_cpu_us) = (_sent(size_bytes, count, group) for count in (1, _SEVERAL))
    return max(0.0, several_us - one_us) / (_SEVERAL - 1), max(0.0, several_cpu_us - one_cpu_us) / (_SEVERAL - 1)


def _sent(size_bytes: int, count: int, group: Horovod) -> tuple[float, float]:
    """Medians of wall time and other threads' CPU time to send so many tensors at once."""
    rows = list(enumerate(torch.zeros(count, max(1, size_bytes // 4))))
    walls, cpus = [], []
    began = time.perf_counter()
    for number in range(1 + _REPEATS):
        late = time.perf_counter() - began > _SECONDS_A_SIZE and number > _FEWEST_REPEATS
        flag = torch.tensor([float(late)])
        group.sum(flag)  # ranks stop together, and begin each together
        if flag.item():
            break
        cpu_us, started = _others_cpu_us(), time.perf_counter()
        # by names that come again, so that Horovod's cache knows them
        handles = [group.hvd.allreduce_async_(row, name=f"{size_bytes}.{place}") for place, row in rows]
        for handle in handles:
            while not group.hvd.poll(handle):
                time.sleep(_POLL_SECONDS)
            group.hvd.synchronize(handle)
        walls.append(1e6 * (time.perf_counter() - started))
        cpus.append(_others_cpu_us() - cpu_us)
    return median(walls), median(cpus)


def _meet() -> None:
    dist.all_reduce(torch.zeros(1))


if __name__ == "__main__":
    calibrated(CalibrationTask.model_validate_json(sys.argv[1]))
    os._exit(0)  # torch's threads are sometimes not ready for the interpreter to go (see cli.main)
