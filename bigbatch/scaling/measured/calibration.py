"""This machine as the simulator wants it, from rounds of the calibration program. Nothing is fitted on measured steps.

links.points       all-reduces while no rank computes, from when the last one has come
links.busy_points  the same while every rank computes
links.cpu_points   the CPU time that each then takes
links.horovod      the same by Horovod, its cycles and questions not counted, where it differs from torch's
control_us         the smallest all-reduce
contention         a step without communication, both ranks at once over one alone
jitter             by how much the slower of two ranks is behind, of steps that begin together
copy_gb_s          a copy in memory, both ranks at once
cycle_cost_us      the CPU time of one of Horovod's cycles that finds nothing to send

Of all of these the median of rounds. The best of each, which no step has all at once, would make a machine that is too
fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Literal

from bigbatch.errors import Problem
from bigbatch.launch import processes
from bigbatch.scaling import horovod
from bigbatch.scaling.jitter import harmonic_number
from bigbatch.scaling.machine import AllReduceTimes, Jitter, Machine, MeasuredLinks
from bigbatch.scaling.measured import starts
from bigbatch.scaling.measured.calibration_program import MODULE, Calibrated, CalibrationTask
from bigbatch.scaling.measured.cases import Case, Subject
from bigbatch.scaling.profile import Layer, Profile

RANKS = 2
_SMALLEST_BYTES = 8
_LEAST_US = 1.0  # of an all-reduce, where a difference of two times says less
_MOST_JITTER = 0.9


@dataclass(frozen=True)
class Calibration:
    """A machine, and what one of its ranks does alone in a step of the subject: as it is, and wrapped by DDP."""

    machine: Machine
    profile: Profile
    profile_in_ddp: Profile


@dataclass(frozen=True)
class CalibrationRound:
    """What each rank measured. `horovod` is empty where it is not asked for."""

    ranks: tuple[Calibrated, ...]
    horovod: tuple[Calibrated, ...] = ()


def once(subject: Subject, rank_batch: int, gradient_bytes: int, *, with_horovod: bool = False) -> CalibrationRound:
    """One start of the program, and another one under Horovod where it is wanted."""
    ranks = _started("ddp", subject, rank_batch, gradient_bytes)
    return CalibrationRound(ranks, _started("horovod", subject, rank_batch, gradient_bytes) if with_horovod else ())


def _started(
    engine: Literal["ddp", "horovod"], subject: Subject, rank_batch: int, gradient_bytes: int
) -> tuple[Calibrated, ...]:
    run = subject.run(Case("local", RANKS, rank_batch))
    with TemporaryDirectory() as name:
        folder = Path(name)
        task = CalibrationTask(
            run=run.model_dump(mode="json"),
            engine=engine,
            model=subject.model,
            rank_batch=rank_batch,
            bytes=sizes(gradient_bytes),
            folder=name,
        )
        line = processes.rank_command(engine, RANKS, MODULE, [task.model_dump_json()])
        output = starts.run_all([line], RANKS, folder)
        found = [Calibrated.model_validate_json(path.read_text()) for path in sorted(folder.glob(f"{engine}-*.json"))]
    if len(found) != RANKS:
        raise Problem(f"calibrating with {RANKS} ranks failed ({starts.reason(output)}): mend that, then again")
    return tuple(found)


def sizes(gradient_bytes: int) -> list[int]:
    """From the smallest message to one as large as all gradients, each four times the one before."""
    found = [_SMALLEST_BYTES, 4096]
    while found[-1] < gradient_bytes:
        found.append(4 * found[-1])
    return found


def calibration(rounds: Sequence[CalibrationRound], name: str = "measured here") -> Calibration:
    """Medians over rounds and ranks."""
    ranks = [rank for one in rounds for rank in one.ranks]
    horovods = [rank for one in rounds for rank in one.horovod]
    alone = _usual(rank.alone for rank in ranks)
    points = rising(_all_reduces(one.ranks for one in rounds))
    busy_points = _busy_points(ranks, points)
    machine = Machine(
        name=name,
        about=f"calibrated with {alone.model}, batch {alone.rank_batch} a rank: medians of {len(rounds)} rounds",
        nodes=1,
        ranks_per_node=RANKS,
        links=MeasuredLinks(
            ranks=RANKS,
            points=points,
            busy_points=busy_points,
            cpu_points=_cpu_points(ranks, busy_points),
            horovod=_horovods([one.horovod for one in rounds if one.horovod], points, busy_points),
        ),
        control_us=points[0][1],
        blocking=True,
        contention=max(1.0, median(map(_contention, rounds))),
        jitter=_jitter(median(_behind(one.ranks) for one in rounds)),
        copy_gb_s=_copy_gb_s(ranks),
    )
    if horovods:
        pause_us = horovod.idle_cycle_us(horovod.Config(), machine, RANKS)
        cost_us = pause_us * median(rank.cycles_share for rank in horovods)
        machine = machine.model_copy(update={"cycle_cost_us": cost_us})
    return Calibration(machine, alone, _usual(rank.alone_in_ddp for rank in ranks))


def _usual(profiles: Iterable[dict[str, Any] | None]) -> Profile:
    """The median one as a whole."""
    found = sorted((_profile(fields) for fields in profiles if fields), key=lambda profile: profile.compute_us)
    return found[len(found) // 2]


def _contention(one: CalibrationRound) -> float:
    alone_us = median(_profile(rank.alone).compute_us for rank in one.ranks if rank.alone)
    return median(us for rank in one.ranks for us in rank.together_us) / alone_us


def _behind(ranks: Sequence[Calibrated]) -> float:
    """The slower rank of each step over all of them, minus 1. A rank that is always slower counts as well."""
    slower_us = map(max, zip(*(rank.together_us for rank in ranks), strict=True))
    return median(slower_us) / median(us for rank in ranks for us in rank.together_us) - 1


def _jitter(behind: float) -> Jitter:
    """The exponential one whose slowest of two ranks is that much behind (see jitter.py)."""
    return Jitter(fraction=min(_MOST_JITTER, max(0.0, behind) / (harmonic_number(RANKS) - 1)))


def rising(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """A smaller message is never slower than a larger one: where it seems so, something disturbed it."""
    return tuple((size, min(us for _, us in points[index:])) for index, (size, _) in enumerate(points))


def _all_reduces(rounds: Iterable[Sequence[Calibrated]]) -> list[tuple[float, float]]:
    """By size. The rank that comes last does not wait for another: its time is that of the all-reduce."""
    found: dict[int, list[float]] = {}
    for ranks in rounds:
        for size in ranks[0].all_reduces:
            of_last_us = map(min, zip(*(rank.all_reduces[size] for rank in ranks), strict=True))
            found.setdefault(size, []).append(median(of_last_us))
    return [(size, median(found[size])) for size in sorted(found)]


def _loaded(ranks: Sequence[Calibrated], field: Literal["sent_us", "cpu_us"]) -> dict[int, float]:
    """By size; not every round tried every size."""
    found: dict[int, list[float]] = {}
    for one in (one for rank in ranks for one in rank.loaded):
        found.setdefault(one.bytes, []).append(getattr(one, field))
    return {size: median(found[size]) for size in sorted(found)}


def _busy_points(ranks: Sequence[Calibrated], points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Beside computing; larger sizes, which were not tried so, by the same factor as the largest that was."""
    alone = dict(points)
    tried = {size: max(alone[size], us) for size, us in _loaded(ranks, "sent_us").items()}
    if not tried:
        return ()
    largest = max(tried)
    factor = tried[largest] / alone[largest]
    return rising([(size, tried.get(int(size), factor * us)) for size, us in points])


def _cpu_points(
    ranks: Sequence[Calibrated], busy_points: Sequence[tuple[float, float]]
) -> tuple[tuple[float, float], ...]:
    """Larger sizes, which were not tried, take the same share of their time as the largest that was."""
    tried = _loaded(ranks, "cpu_us")
    if not tried:
        return ()
    largest = max(tried)
    share = tried[largest] / dict(busy_points)[largest]
    return rising([(size, tried.get(int(size), share * us)) for size, us in busy_points])


def _horovods(
    rounds: Sequence[Sequence[Calibrated]],
    points: Sequence[tuple[float, float]],
    busy_points: Sequence[tuple[float, float]],
) -> AllReduceTimes | None:
    """Its latency is its own, as ranks that have just agreed on what to send are awake.

    Bytes take no less than torch's, which go the same way and were timed after steps and beside them.
    """
    if not rounds:
        return None
    ranks = [rank for one in rounds for rank in one]
    own = {size: median(rank.all_reduces[size][0] for rank in ranks) for size in ranks[0].all_reduces}
    latency_us = max(_LEAST_US, own[int(points[0][0])])
    alone = rising([(size, max(own[int(size)], latency_us + us - points[0][1])) for size, us in points])
    torchs_busy_us = [us - busy_points[0][1] for _, us in busy_points] or [0.0] * len(points)
    busy = [(size, max(us, latency_us + more_us)) for (size, us), more_us in zip(alone, torchs_busy_us, strict=True)]
    return AllReduceTimes(points=alone, busy_points=rising(busy), cpu_points=_cpu_points(ranks, busy))


def _copy_gb_s(ranks: Sequence[Calibrated]) -> float | None:
    """None: of rounds without copies."""
    found = [1e-3 * max(rank.all_reduces) / rank.copy_us for rank in ranks if rank.copy_us]
    return median(found) if found else None


def _profile(fields: dict[str, Any]) -> Profile:
    layers = tuple(
        Layer(layer["name"], layer["backward_us"], tuple(layer["gradient_bytes"])) for layer in fields["layers"]
    )
    return Profile(**{**fields, "layers": layers})
