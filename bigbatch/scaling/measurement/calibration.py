"""This machine as the simulator describes machines, from rounds of calibration on two ranks.

None of it is a step that the simulator predicts, and nothing is fitted on measured steps:

links.points       all-reduces after steps, when nothing computes but nothing is warm from the all-reduce before either;
                   from the arrival of the last rank
links.busy_points  the same while every rank computes
links.cpu_points   the CPU time that each then takes
links.horovod      the same by Horovod without its cycles and negotiation, where it differs from torch's
control_us         the smallest all-reduce
contention         a step without communication, both ranks at once over one alone
jitter             how far the slower of two ranks is behind, in steps that begin together
copy_gb_s          a copy in memory, both ranks at once
cycle_cost_us      the CPU time of one of Horovod's cycles that finds nothing to send

Each is the median over rounds. The best of each, which no step has all at once, would make a machine that is too fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Literal

import torch
import torch.distributed as dist
from pydantic import BaseModel

from bigbatch.engines import Engine, ddp
from bigbatch.engines.horovod import Horovod
from bigbatch.run import Run
from bigbatch.scaling.horovod import SimulatedHorovod
from bigbatch.scaling.layers import WARMUP_STEPS, median_profile
from bigbatch.scaling.machine import AllReduceTimes, Jitter, Machine, MeasuredLinks, harmonic_number
from bigbatch.scaling.profile import Profile
from bigbatch.scaling.ranks import run_on_ranks
from bigbatch.scaling.stepper import DDPWithoutCommunication, Stepper, WithoutCommunication, barrier, record_steps
from bigbatch.scaling.workload import EngineConfiguration, Workload

RANKS = 2
_SMALLEST_BYTES = 8
_LEAST_US = 1.0  # of an all-reduce, where a difference of two times says less
_MOST_JITTER = 0.9
_REPEATS = 20
_ALL_REDUCE_REPEATS = 8
_CONCURRENT = 8  # all-reduces in one cycle of Horovod
_FEWEST_REPEATS = 6
_SECONDS_PER_SIZE = 0.4
_POLL_SECONDS = 2e-5  # Horovod itself waits at full speed, and takes the core from its own thread now and then
TimedSizes = Sequence[tuple[float, float]]  # bytes, microseconds


class RankCalibration(BaseModel):
    """One round of one rank, in microseconds. Profiles are None on ranks that waited."""

    rank: int
    all_reduces: dict[int, list[float]]  # by bytes: each time that it was done, on all ranks at once
    busy_us: dict[int, float] = {}  # by bytes: all-reduces while the rank computes; not known for Horovod
    cpu_us: dict[int, float]  # by bytes: the CPU time that other threads then take
    alone: Profile | None = None
    alone_in_ddp: Profile | None = None  # with DDP's hooks and buckets, which are not sent
    together_us: list[float] = []  # steps that both ranks began at once
    copy_us: float = 0.0  # as many bytes as the largest all-reduce, from one place in memory to another
    cycles_fraction: float = 0.0  # of a core, taken by Horovod's cycles beside steps


@dataclass(frozen=True)
class CalibrationRound:
    """What each rank timed. `horovod` is empty where it is not measured."""

    ranks: tuple[RankCalibration, ...]
    horovod: tuple[RankCalibration, ...] = ()


@dataclass(frozen=True)
class Calibration:
    """A machine, and what one of its ranks does alone in a step of the model: plain, and wrapped by DDP."""

    machine: Machine
    profile: Profile
    profile_in_ddp: Profile


def calibrate_round(
    model: Workload, rank_batch: int, gradient_bytes: int, *, with_horovod: bool = False
) -> CalibrationRound:
    """Start the two ranks once, and once more under Horovod where that is wanted."""
    plain = replace(model, engine_options={})  # options of the measured engines do not affect the calibration

    def calibrate(engine: str, *settings: tuple[str, float]) -> tuple[RankCalibration, ...]:
        configuration = EngineConfiguration(engine, RANKS, rank_batch, settings)
        options = {"sizes": all_reduce_sizes(gradient_bytes)}
        found = run_on_ranks(calibrate_rank, plain, configuration, options=options)
        return tuple(RankCalibration.model_validate_json(text) for text in found.texts)

    # without fusion each tensor is an all-reduce of its own
    return CalibrationRound(calibrate("ddp"), calibrate("horovod", ("fusion_mb", 0.0)) if with_horovod else ())


def all_reduce_sizes(gradient_bytes: int) -> list[int]:
    """From the smallest message to one as large as all gradients, each four times the one before."""
    sizes = [_SMALLEST_BYTES, 4096]
    while sizes[-1] < gradient_bytes:
        sizes.append(4 * sizes[-1])
    return sizes


# on each rank


def calibrate_rank(run: Run, engine: Engine, sizes: Sequence[int]) -> str:
    """Return a RankCalibration with all-reduces of these sizes, smallest first, by the engine that communicates."""
    found = (
        _calibrate_horovod(run, engine, sizes) if isinstance(engine, Horovod) else _calibrate_torch(run, engine, sizes)
    )
    return found.model_dump_json()


def _calibrate_torch(run: Run, engine: Engine, sizes: Sequence[int]) -> RankCalibration:
    assert isinstance(run.engine, ddp.Config)
    plain = Stepper(run, WithoutCommunication(engine.world_size, engine.rank))
    in_ddp = Stepper(run, DDPWithoutCommunication(engine.world_size, engine.rank, run.engine))
    for stepper in (plain, in_ddp):  # all ranks: DDP's buckets are agreed on after its first step
        record_steps(stepper, WARMUP_STEPS + 1)
    alone, alone_in_ddp, together_us = [], [], []
    for _ in range(_REPEATS):  # rank 0 alone, the same in DDP, and both ranks at once: in turn, to share disturbances
        if engine.rank == 0:
            alone += record_steps(plain)
            alone_in_ddp += record_steps(in_ddp)
        barrier(engine)
        together_us.append(record_steps(plain)[0].step_us)
        barrier(engine)
    table = _time_all_reduces_after_steps(plain, sizes)
    # those that are over before a step is; rank 0 decides, as ranks send the same
    fitting = engine.broadcast([size for size, times in table.items() if median(times) < median(together_us) / 2])
    busy = _time_all_reduces_beside_steps(plain, engine, fitting)
    return RankCalibration(
        rank=engine.rank,
        all_reduces=table,
        busy_us={size: median(sent_us for sent_us, _ in times) for size, times in busy.items()},
        cpu_us={size: median(cpu_us for _, cpu_us in times) for size, times in busy.items()},
        alone=median_profile(plain, alone, "timed on one thread") if alone else None,
        alone_in_ddp=median_profile(in_ddp, alone_in_ddp, "timed on one thread") if alone_in_ddp else None,
        together_us=together_us,
        copy_us=_time_copy(engine, sizes[-1]),
    )


def _measure_wall_and_cpu_us(action: Callable[[], object]) -> tuple[float, float]:
    """Return the wall time of an action, and the CPU time of all threads of this process except this one."""
    cpu, started = time.process_time() - time.thread_time(), time.perf_counter()
    action()
    wall = time.perf_counter() - started
    return 1e6 * wall, 1e6 * (time.process_time() - time.thread_time() - cpu)


def _time_copy(engine: Engine, size_bytes: int) -> float:
    source, target = torch.ones(size_bytes // 4), torch.ones(size_bytes // 4)  # memory that is there already
    barrier(engine)  # both ranks at once: they share the memory's bandwidth
    return median(_measure_wall_and_cpu_us(partial(target.copy_, source))[0] for _ in range(_REPEATS))


def _time_all_reduces_after_steps(stepper: Stepper, sizes: Sequence[int]) -> dict[int, list[float]]:
    # written to once: the system gives memory only then, which buckets have had for long
    tensors = {size: torch.empty(max(1, size // 4)).zero_() for size in sizes}
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(_ALL_REDUCE_REPEATS):
        for size, tensor in tensors.items():
            stepper.step()
            times[size].append(_measure_wall_and_cpu_us(partial(dist.all_reduce, tensor))[0])
    return times


def _time_all_reduces_beside_steps(
    stepper: Stepper, engine: Engine, sizes: Sequence[int]
) -> dict[int, list[tuple[float, float]]]:
    """Time steps that begin with an all-reduce: when that ended, and the CPU time of other threads.

    Sizes are taken in turn, so that a disturbance affects all of them alike.
    """
    tensors = {size: torch.zeros(max(1, size // 4)) for size in sizes}
    times: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    moments: list[float] = []

    def step_beside_all_reduce(tensor: torch.Tensor) -> None:
        moments[:] = [time.perf_counter()]
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        work.get_future().add_done_callback(lambda _: moments.append(time.perf_counter()))
        stepper.step()
        work.wait()

    for _ in range(_ALL_REDUCE_REPEATS):
        for size, tensor in tensors.items():
            barrier(engine)
            _, cpu_us = _measure_wall_and_cpu_us(partial(step_beside_all_reduce, tensor))
            started, *ended = moments
            times[size].append((1e6 * ((ended or [time.perf_counter()])[0] - started), cpu_us))
    return times


def _calibrate_horovod(run: Run, engine: Horovod, sizes: Sequence[int]) -> RankCalibration:
    stepper = Stepper(run, WithoutCommunication(engine.world_size, engine.rank))
    record_steps(stepper, WARMUP_STEPS + 1)
    steps = [_measure_wall_and_cpu_us(stepper.step) for _ in range(_REPEATS)]
    times = {}
    for size in sizes:  # one more all-reduce in a cycle: the first waits for the cycle and negotiation
        one, several = (_measure_all_reduces_wall_and_cpu_us(size, count, engine) for count in (1, _CONCURRENT))
        times[size] = [max(0.0, more - less) / (_CONCURRENT - 1) for less, more in zip(one, several, strict=True)]
    return RankCalibration(
        rank=engine.rank,
        all_reduces={size: [wall_us] for size, (wall_us, _) in times.items()},
        cpu_us={size: cpu_us for size, (_, cpu_us) in times.items()},
        cycles_fraction=median(cpu_us / wall_us for wall_us, cpu_us in steps),
    )


def _measure_all_reduces_wall_and_cpu_us(size_bytes: int, count: int, engine: Horovod) -> tuple[float, float]:
    """Return medians of wall time and of other threads' CPU time for `count` all-reduces at once."""
    rows = list(enumerate(torch.zeros(count, max(1, size_bytes // 4))))

    def all_reduce() -> None:
        # under the same names each time, so that Horovod's cache knows them
        handles = [engine.hvd.allreduce_async_(row, name=f"{size_bytes}.{place}") for place, row in rows]
        for handle in handles:
            while not engine.hvd.poll(handle):
                time.sleep(_POLL_SECONDS)
            engine.hvd.synchronize(handle)

    times, began = [], time.perf_counter()
    for number in range(1 + _REPEATS):
        late = time.perf_counter() - began > _SECONDS_PER_SIZE and number > _FEWEST_REPEATS
        flag = torch.tensor([float(late)])
        engine.sum(flag)  # ranks stop together, and begin each repeat together
        if flag.item():
            break
        times.append(_measure_wall_and_cpu_us(all_reduce))
    return median(wall_us for wall_us, _ in times), median(cpu_us for _, cpu_us in times)


# from rounds to a machine


def summarize_rounds(rounds: Sequence[CalibrationRound], name: str = "measured here") -> Calibration:
    """Return the medians over rounds and ranks."""
    ranks = [rank for one in rounds for rank in one.ranks]
    horovod_ranks = [rank for one in rounds for rank in one.horovod]
    alone = _median_profile(rank.alone for rank in ranks)
    points = make_monotonic(_all_reduce_points(one.ranks for one in rounds))
    busy_us = {size: max(dict(points)[size], us) for size, us in _medians_by_size(ranks, "busy_us").items()}
    busy_points = _extend_to_all_sizes(busy_us, points)
    # of the slower rank of two in each step over all of them; a rank that is always slower counts as well
    delay = median(_median_slower_step_us(one.ranks) / median(_together_us(one.ranks)) - 1 for one in rounds)
    copies_gb_s = [1e-3 * max(rank.all_reduces) / rank.copy_us for rank in ranks if rank.copy_us]
    machine = Machine(
        name=name,
        about=f"calibrated with {alone.model}, batch {alone.rank_batch} per rank: medians of {len(rounds)} rounds",
        nodes=1,
        ranks_per_node=RANKS,
        links=MeasuredLinks(
            ranks=RANKS,
            points=points,
            busy_points=busy_points,
            cpu_points=_extend_to_all_sizes(_medians_by_size(ranks, "cpu_us"), busy_points),
            horovod=_horovod_times(horovod_ranks, points, busy_points) if horovod_ranks else None,
        ),
        control_us=points[0][1],
        blocking=True,
        contention=max(1.0, median(map(_contention, rounds))),
        # the exponential jitter whose slowest of two ranks is that much behind
        jitter=Jitter(fraction=min(_MOST_JITTER, max(0.0, delay) / (harmonic_number(RANKS) - 1))),
        copy_gb_s=median(copies_gb_s) if copies_gb_s else None,
    )
    if horovod_ranks:
        pause_us = SimulatedHorovod().idle_cycle_us(machine, RANKS)
        cost_us = pause_us * median(rank.cycles_fraction for rank in horovod_ranks)
        machine = machine.model_copy(update={"cycle_cost_us": cost_us})
    return Calibration(machine, alone, _median_profile(rank.alone_in_ddp for rank in ranks))


def _median_profile(profiles: Iterable[Profile | None]) -> Profile:
    """Return the median one as a whole."""
    known = sorted((profile for profile in profiles if profile), key=lambda profile: profile.compute_us)
    return known[len(known) // 2]


def _together_us(ranks: Sequence[RankCalibration]) -> list[float]:
    return [us for rank in ranks for us in rank.together_us]


def _median_slower_step_us(ranks: Sequence[RankCalibration]) -> float:
    return float(median(map(max, zip(*(rank.together_us for rank in ranks), strict=True))))


def _contention(one: CalibrationRound) -> float:
    return median(_together_us(one.ranks)) / median(rank.alone.compute_us for rank in one.ranks if rank.alone)


def make_monotonic(points: TimedSizes) -> tuple[tuple[float, float], ...]:
    """A smaller message is never slower than a larger one: where it seems so, something disturbed it."""
    return tuple((size, min(us for _, us in points[index:])) for index, (size, _) in enumerate(points))


def _all_reduce_points(rounds: Iterable[Sequence[RankCalibration]]) -> list[tuple[float, float]]:
    """By size. The rank that comes last does not wait for another: its time is that of the all-reduce."""
    times: dict[int, list[float]] = {}
    for ranks in rounds:
        for size in ranks[0].all_reduces:
            of_last_us = map(min, zip(*(rank.all_reduces[size] for rank in ranks), strict=True))
            times.setdefault(size, []).append(median(of_last_us))
    return [(size, median(times[size])) for size in sorted(times)]


def _medians_by_size(ranks: Sequence[RankCalibration], field: Literal["busy_us", "cpu_us"]) -> dict[int, float]:
    """Not every round tried every size beside computation."""
    tables: list[dict[int, float]] = [getattr(rank, field) for rank in ranks]
    return {
        size: median(table[size] for table in tables if size in table)
        for size in sorted({size for table in tables for size in table})
    }


def _extend_to_all_sizes(tried_us: dict[int, float], points: TimedSizes) -> tuple[tuple[float, float], ...]:
    """Larger sizes, which were not tried beside computation, by the same factor to `points` as the largest that was."""
    if not tried_us:
        return ()
    largest = max(tried_us)
    factor = tried_us[largest] / dict(points)[largest]
    return make_monotonic([(size, tried_us.get(int(size), factor * us)) for size, us in points])


def _horovod_times(ranks: Sequence[RankCalibration], points: TimedSizes, busy_points: TimedSizes) -> AllReduceTimes:
    """Horovod's latency is its own, as ranks that have just agreed on what to send are awake.

    Bytes take no less than torch's, which go the same way and were timed after steps and beside them.
    """
    own = {size: median(rank.all_reduces[size][0] for rank in ranks) for size in ranks[0].all_reduces}
    latency_us = max(_LEAST_US, own[int(points[0][0])])
    alone = make_monotonic([(size, max(own[int(size)], latency_us + us - points[0][1])) for size, us in points])
    torch_busy_us = [us - busy_points[0][1] for _, us in busy_points] or [0.0] * len(points)
    busy = [(size, max(us, latency_us + more_us)) for (size, us), more_us in zip(alone, torch_busy_us, strict=True)]
    return AllReduceTimes(
        points=alone,
        busy_points=make_monotonic(busy),
        cpu_points=_extend_to_all_sizes(_medians_by_size(ranks, "cpu_us"), busy),
    )
