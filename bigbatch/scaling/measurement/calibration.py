"""This machine as the simulator describes machines, from rounds of calibration. Nothing is fitted on measured steps.

links.points       all-reduces while no rank computes, from the arrival of the last rank
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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Literal

from bigbatch.scaling.horovod import SimulatedHorovod
from bigbatch.scaling.jitter import harmonic_number
from bigbatch.scaling.machine import AllReduceTimes, Jitter, Machine, MeasuredLinks
from bigbatch.scaling.measurement.calibration_task import CalibrationTask, RankCalibration
from bigbatch.scaling.profile import Profile
from bigbatch.scaling.ranks import run_on_ranks
from bigbatch.scaling.workload import EngineConfiguration, Workload

RANKS = 2
_SMALLEST_BYTES = 8
_LEAST_US = 1.0  # of an all-reduce, where a difference of two times says less
_MOST_JITTER = 0.9
TimedSizes = Sequence[tuple[float, float]]  # bytes, microseconds


@dataclass(frozen=True)
class Calibration:
    """A machine, and what one of its ranks does alone in a step of the model: plain, and wrapped by DDP."""

    machine: Machine
    profile: Profile
    profile_in_ddp: Profile


@dataclass(frozen=True)
class CalibrationRound:
    """What each rank timed. `horovod` is empty where it is not measured."""

    ranks: tuple[RankCalibration, ...]
    horovod: tuple[RankCalibration, ...] = ()


def calibrate_round(
    model: Workload, rank_batch: int, gradient_bytes: int, *, with_horovod: bool = False
) -> CalibrationRound:
    """Start the two ranks once, and once more under Horovod where that is wanted."""
    plain = replace(model, engine_options={})  # options of the measured engines do not affect the calibration
    sizes = all_reduce_sizes(gradient_bytes)
    # without fusion each tensor is an all-reduce of its own
    configurations = {
        "ddp": EngineConfiguration("ddp", RANKS, rank_batch),
        "horovod": EngineConfiguration("horovod", RANKS, rank_batch, (("fusion_mb", 0.0),)),
    }

    def timed_by(engine: str) -> tuple[RankCalibration, ...]:
        run = plain.run(configurations[engine])
        task = CalibrationTask(run=run.model_dump(mode="json"), bytes=sizes)
        with TemporaryDirectory() as folder:
            results = run_on_ranks(task, RANKS, Path(folder), label=f"calibration with {engine}")
        return tuple(RankCalibration.model_validate_json(result) for result in results)

    return CalibrationRound(timed_by("ddp"), timed_by("horovod") if with_horovod else ())


def all_reduce_sizes(gradient_bytes: int) -> list[int]:
    """From the smallest message to one as large as all gradients, each four times the one before."""
    sizes = [_SMALLEST_BYTES, 4096]
    while sizes[-1] < gradient_bytes:
        sizes.append(4 * sizes[-1])
    return sizes


def summarize_rounds(rounds: Sequence[CalibrationRound], name: str = "measured here") -> Calibration:
    """Return the medians over rounds and ranks."""
    ranks = [rank for one in rounds for rank in one.ranks]
    horovod_ranks = [rank for one in rounds for rank in one.horovod]
    alone = _median_profile(rank.alone for rank in ranks)
    points = make_monotonic(_all_reduce_points(one.ranks for one in rounds))
    busy_points = _busy_points(ranks, points)
    machine = Machine(
        name=name,
        about=f"calibrated with {alone.model}, batch {alone.rank_batch} per rank: medians of {len(rounds)} rounds",
        nodes=1,
        ranks_per_node=RANKS,
        links=MeasuredLinks(
            ranks=RANKS,
            points=points,
            busy_points=busy_points,
            cpu_points=_cpu_points(ranks, busy_points),
            horovod=_horovod_points([one.horovod for one in rounds if one.horovod], points, busy_points),
        ),
        control_us=points[0][1],
        blocking=True,
        contention=max(1.0, median(map(_contention, rounds))),
        jitter=_jitter(median(_slower_rank_delay(one.ranks) for one in rounds)),
        copy_gb_s=_copy_gb_s(ranks),
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


def _contention(one: CalibrationRound) -> float:
    alone_us = median(rank.alone.compute_us for rank in one.ranks if rank.alone)
    return median(us for rank in one.ranks for us in rank.together_us) / alone_us


def _slower_rank_delay(ranks: Sequence[RankCalibration]) -> float:
    """The slower rank of each step over all of them, minus 1. A rank that is always slower counts as well."""
    slower_us: float = median(map(max, zip(*(rank.together_us for rank in ranks), strict=True)))
    return slower_us / median(us for rank in ranks for us in rank.together_us) - 1


def _jitter(delay: float) -> Jitter:
    """The exponential jitter whose slowest of two ranks is that much behind (see jitter.py)."""
    return Jitter(fraction=min(_MOST_JITTER, max(0.0, delay) / (harmonic_number(RANKS) - 1)))


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


def _busy_medians(ranks: Sequence[RankCalibration], field: Literal["sent_us", "cpu_us"]) -> dict[int, float]:
    """By size; not every round tried every size."""
    times: dict[int, list[float]] = {}
    for one in (one for rank in ranks for one in rank.busy_all_reduces):
        times.setdefault(one.bytes, []).append(getattr(one, field))
    return {size: median(times[size]) for size in sorted(times)}


def _busy_points(ranks: Sequence[RankCalibration], points: TimedSizes) -> tuple[tuple[float, float], ...]:
    """Beside computation; larger sizes, which were not tried so, by the same factor as the largest that was."""
    alone = dict(points)
    tried = {size: max(alone[size], us) for size, us in _busy_medians(ranks, "sent_us").items()}
    if not tried:
        return ()
    largest = max(tried)
    factor = tried[largest] / alone[largest]
    return make_monotonic([(size, tried.get(int(size), factor * us)) for size, us in points])


def _cpu_points(ranks: Sequence[RankCalibration], busy_points: TimedSizes) -> tuple[tuple[float, float], ...]:
    """Larger sizes, which were not tried, take the same fraction of their time as the largest that was."""
    tried = _busy_medians(ranks, "cpu_us")
    if not tried:
        return ()
    largest = max(tried)
    fraction = tried[largest] / dict(busy_points)[largest]
    return make_monotonic([(size, tried.get(int(size), fraction * us)) for size, us in busy_points])


def _horovod_points(
    rounds: Sequence[Sequence[RankCalibration]], points: TimedSizes, busy_points: TimedSizes
) -> AllReduceTimes | None:
    """Horovod's latency is its own, as ranks that have just agreed on what to send are awake.

    Bytes take no less than torch's, which go the same way and were timed after steps and beside them.
    """
    if not rounds:
        return None
    ranks = [rank for one in rounds for rank in one]
    own = {size: median(rank.all_reduces[size][0] for rank in ranks) for size in ranks[0].all_reduces}
    latency_us = max(_LEAST_US, own[int(points[0][0])])
    alone = make_monotonic([(size, max(own[int(size)], latency_us + us - points[0][1])) for size, us in points])
    torch_busy_us = [us - busy_points[0][1] for _, us in busy_points] or [0.0] * len(points)
    busy = [(size, max(us, latency_us + more_us)) for (size, us), more_us in zip(alone, torch_busy_us, strict=True)]
    return AllReduceTimes(points=alone, busy_points=make_monotonic(busy), cpu_points=_cpu_points(ranks, busy))


def _copy_gb_s(ranks: Sequence[RankCalibration]) -> float | None:
    """None for rounds without copies."""
    speeds = [1e-3 * max(rank.all_reduces) / rank.copy_us for rank in ranks if rank.copy_us]
    return median(speeds) if speeds else None
