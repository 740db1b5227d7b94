"""The worker task of a calibration: what two ranks time for the simulator, none of it a step that it predicts.

The model's step without communication, on one rank alone, plain and wrapped by DDP, and on both at once; all-reduces
by size, after such steps, when nothing computes but nothing is warm from the all-reduce before either; the same beside
steps, with the CPU time that they take; copies in memory. With Horovod: its all-reduces, and what its cycles take that
find nothing to send.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Literal

import torch
import torch.distributed as dist
from pydantic import BaseModel

from bigbatch.engines import Engine, ddp
from bigbatch.engines.horovod import Horovod
from bigbatch.run import Run
from bigbatch.scaling import layer_timing
from bigbatch.scaling.phases import StepPhases
from bigbatch.scaling.profile import Profile
from bigbatch.scaling.ranks import WorkerTask
from bigbatch.scaling.stepper import DDPWithoutCommunication, Stepper, WithoutCommunication

_REPEATS = 20
_ALL_REDUCE_REPEATS = 8
_CONCURRENT = 8  # all-reduces in one cycle of Horovod
_FEWEST_REPEATS = 6
_SECONDS_PER_SIZE = 0.4
_POLL_SECONDS = 2e-5  # Horovod itself waits at full speed, and takes the core from its own thread now and then


class BusyAllReduce(BaseModel):
    """An all-reduce while the rank computes, in microseconds: medians. CPU time is that of other threads."""

    bytes: int
    sent_us: float | None = None  # as a whole; not known for Horovod
    cpu_us: float


class RankCalibration(BaseModel):
    """One round of one rank, in microseconds. Profiles are None on ranks that waited."""

    rank: int
    all_reduces: dict[int, list[float]]  # by bytes: each time that it was done, on all ranks at once
    busy_all_reduces: list[BusyAllReduce]
    alone: Profile | None = None
    alone_in_ddp: Profile | None = None  # with DDP's hooks and buckets, which are not sent
    together_us: list[float] = []  # steps that both ranks began at once
    copy_us: float = 0.0  # as many bytes as the largest all-reduce, from one place in memory to another
    cycles_fraction: float = 0.0  # of a core, taken by Horovod's cycles beside steps


class CalibrationTask(WorkerTask):
    """`run` is a rank's step with the engine that communicates; `bytes` are sizes of all-reduces, smallest first."""

    kind: Literal["calibration"] = "calibration"
    bytes: list[int]

    def perform(self, run: Run, engine: Engine) -> str:
        calibrate = _calibrate_horovod if isinstance(engine, Horovod) else _calibrate_torch
        return calibrate(run, engine, self.bytes).model_dump_json()


def _calibrate_torch(run: Run, engine: Engine, sizes: Sequence[int]) -> RankCalibration:
    assert isinstance(run.engine, ddp.Config)
    plain = Stepper(run, WithoutCommunication(engine.world_size, engine.rank))
    in_ddp = Stepper(run, DDPWithoutCommunication(engine.world_size, engine.rank, run.engine))
    alone, alone_in_ddp, together = _time_steps_in_turn(engine, plain, in_ddp)
    table = _time_all_reduces_after_steps(plain, sizes)
    # those that are over before a step is; rank 0 decides, as ranks send the same
    fitting = engine.broadcast([size for size, times in table.items() if median(times) < median(together) / 2])

    def profile(stepper: Stepper, steps: list[StepPhases]) -> Profile | None:
        if not steps:
            return None
        rank_batch = plain.global_batch // engine.world_size
        return layer_timing.median_profile(run.model.name, rank_batch, stepper, steps, "timed on one thread")

    return RankCalibration(
        rank=engine.rank,
        all_reduces=table,
        busy_all_reduces=_time_all_reduces_beside_steps(plain, fitting),
        alone=profile(plain, alone),
        alone_in_ddp=profile(in_ddp, alone_in_ddp),
        together_us=together,
        copy_us=_time_copy(sizes[-1]),
    )


def _time_steps_in_turn(
    engine: Engine, plain: Stepper, in_ddp: Stepper
) -> tuple[list[StepPhases], list[StepPhases], list[float]]:
    """Time steps of rank 0 alone, the same in DDP, and of both ranks at once: in turn, to share disturbances."""
    alone, alone_in_ddp, together = [], [], []
    for stepper in (plain, in_ddp):  # all ranks: DDP's buckets are agreed on after its first step
        _warm_up(stepper)
    for _ in range(_REPEATS):
        if engine.rank == 0:
            alone.append(layer_timing.record_one_step(plain))
            alone_in_ddp.append(layer_timing.record_one_step(in_ddp))
        _barrier()
        together.append(layer_timing.record_one_step(plain).step_us)
        _barrier()
    return alone, alone_in_ddp, together


def _time_copy(size_bytes: int) -> float:
    source, target = torch.ones(size_bytes // 4), torch.ones(size_bytes // 4)  # memory that is there already
    _barrier()  # both ranks at once: they share the memory's bandwidth
    times = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        target.copy_(source)
        times.append(1e6 * (time.perf_counter() - started))
    return median(times)


def _time_all_reduces_after_steps(stepper: Stepper, sizes: Sequence[int]) -> dict[int, list[float]]:
    # written to once: the system gives memory only then, which buckets have had for long
    tensors = {size: torch.empty(max(1, size // 4)).zero_() for size in sizes}
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(_ALL_REDUCE_REPEATS):
        for size in sizes:
            stepper.step()
            started = time.perf_counter()
            dist.all_reduce(tensors[size])
            times[size].append(1e6 * (time.perf_counter() - started))
    return times


def _time_all_reduces_beside_steps(stepper: Stepper, sizes: Sequence[int]) -> list[BusyAllReduce]:
    """Take sizes in turn, so that a disturbance affects all of them alike."""
    tensors = {size: torch.zeros(max(1, size // 4)) for size in sizes}
    times: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    for _ in range(_ALL_REDUCE_REPEATS):
        for size in sizes:
            _barrier()
            times[size].append(_time_all_reduce_beside_step(stepper, tensors[size]))
    return [
        BusyAllReduce(
            bytes=size,
            sent_us=median(sent_us for sent_us, _ in times[size]),
            cpu_us=median(cpu_us for _, cpu_us in times[size]),
        )
        for size in sizes
    ]


def _time_all_reduce_beside_step(stepper: Stepper, tensor: torch.Tensor) -> tuple[float, float]:
    """Take a step that begins with an all-reduce; return when that ended, and the CPU time of other threads."""
    ended: list[float] = []
    cpu_us, started = _other_threads_cpu_us(), time.perf_counter()
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    work.get_future().add_done_callback(lambda _: ended.append(time.perf_counter()))
    stepper.step()
    work.wait()
    sent = ended[0] if ended else time.perf_counter()
    return 1e6 * (sent - started), _other_threads_cpu_us() - cpu_us


def _other_threads_cpu_us() -> float:
    """Return the CPU time of all threads of this process except this one."""
    return 1e6 * (time.process_time() - time.thread_time())


def _calibrate_horovod(run: Run, engine: Engine, sizes: Sequence[int]) -> RankCalibration:
    assert isinstance(engine, Horovod)
    stepper = Stepper(run, WithoutCommunication(engine.world_size, engine.rank))
    _warm_up(stepper)
    fractions = []
    for _ in range(_REPEATS):
        cpu_us, started = _other_threads_cpu_us(), time.perf_counter()
        stepper.step()
        fractions.append((_other_threads_cpu_us() - cpu_us) / (1e6 * (time.perf_counter() - started)))
    times = {size: _time_additional_all_reduce(size, engine) for size in sizes}
    return RankCalibration(
        rank=engine.rank,
        all_reduces={size: [wall_us] for size, (wall_us, _) in times.items()},
        busy_all_reduces=[BusyAllReduce(bytes=size, cpu_us=cpu_us) for size, (_, cpu_us) in times.items()],
        cycles_fraction=median(fractions),
    )


def _time_additional_all_reduce(size_bytes: int, engine: Horovod) -> tuple[float, float]:
    """Return wall and CPU time of one more all-reduce in a cycle: the first waits for the cycle and negotiation."""
    one_us, one_cpu_us = _time_concurrent_all_reduces(size_bytes, 1, engine)
    all_us, all_cpu_us = _time_concurrent_all_reduces(size_bytes, _CONCURRENT, engine)
    return max(0.0, all_us - one_us) / (_CONCURRENT - 1), max(0.0, all_cpu_us - one_cpu_us) / (_CONCURRENT - 1)


def _time_concurrent_all_reduces(size_bytes: int, count: int, engine: Horovod) -> tuple[float, float]:
    """Return medians of wall time and of other threads' CPU time for `count` all-reduces at once."""
    rows = list(enumerate(torch.zeros(count, max(1, size_bytes // 4))))
    walls, cpus = [], []
    began = time.perf_counter()
    for number in range(1 + _REPEATS):
        late = time.perf_counter() - began > _SECONDS_PER_SIZE and number > _FEWEST_REPEATS
        flag = torch.tensor([float(late)])
        engine.sum(flag)  # ranks stop together, and begin each repeat together
        if flag.item():
            break
        cpu_us, started = _other_threads_cpu_us(), time.perf_counter()
        # under the same names each time, so that Horovod's cache knows them
        handles = [engine.hvd.allreduce_async_(row, name=f"{size_bytes}.{place}") for place, row in rows]
        for handle in handles:
            while not engine.hvd.poll(handle):
                time.sleep(_POLL_SECONDS)
            engine.hvd.synchronize(handle)
        walls.append(1e6 * (time.perf_counter() - started))
        cpus.append(_other_threads_cpu_us() - cpu_us)
    return median(walls), median(cpus)


def _warm_up(stepper: Stepper) -> None:
    for _ in range(layer_timing.WARMUP_STEPS + 1):
        layer_timing.record_one_step(stepper)


def _barrier() -> None:
    dist.all_reduce(torch.zeros(1))
