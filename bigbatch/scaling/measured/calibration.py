"""This machine as the simulator wants it, from rounds of the calibration program. Nothing is fitted on measured steps.

links.points          all-reduces while nothing else runs
links.busy_points     the same while every rank computes
links.horovod_points  the same by Horovod: what each takes longer than the smallest, which is taken for torch's
control_us            the smallest all-reduce
contention            a step without communication, both ranks at once over one alone
stolen                what a step loses to one all-reduce beside it, as a share of that all-reduce's time alone
copy_gb_s             a copy in memory, both ranks at once
cycle_cost_us         what a step beside Horovod's idle cycles loses to each of them

Of all of these the median of rounds, as of the steps that are predicted (`Timing.median_s`). The best of each, which
no step has all at once, would make a machine that is too fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Literal

from bigbatch import launch
from bigbatch.errors import Problem
from bigbatch.scaling.machine import Machine, Measured
from bigbatch.scaling.measured import starts
from bigbatch.scaling.measured.calibration_program import MODULE, Calibrated, CalibrationTask
from bigbatch.scaling.measured.cases import Case, Subject
from bigbatch.scaling.profile import Layer, Profile

RANKS = 2
_CYCLE_US = 1000.0  # Horovod's default, which the program leaves as it is
_SMALLEST_BYTES = 8
_LEAST_SHARE = 0.03  # of a step: what a shorter all-reduce takes from it drowns in the step's own spread


@dataclass(frozen=True)
class Calibration:
    """A machine, and what one of its ranks does alone in a step of the subject."""

    machine: Machine
    profile: Profile
    rounds: int


@dataclass(frozen=True)
class CalibrationRound:
    """What each rank measured. `beside_cycles` is empty where Horovod is not asked for."""

    ranks: tuple[Calibrated, ...]
    beside_cycles: tuple[Calibrated, ...] = ()


def once(subject: Subject, rank_batch: int, gradient_bytes: int, *, horovod: bool = False) -> CalibrationRound:
    """One start of the program, and another one under Horovod where it is wanted."""
    ranks = _started("ddp", subject, rank_batch, gradient_bytes)
    return CalibrationRound(ranks, _started("horovod", subject, rank_batch, gradient_bytes) if horovod else ())


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
        line = launch.start_line(engine, RANKS, MODULE, [task.model_dump_json()])
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
    profiles = sorted((_profile(rank.alone) for rank in ranks if rank.alone), key=lambda profile: profile.compute_us)
    alone = profiles[len(profiles) // 2]
    together_us = median(_together_us(one.ranks) for one in rounds)
    beside_cycles = [_together_us(one.beside_cycles) for one in rounds if one.beside_cycles]
    beside_cycles_us = median(beside_cycles) if beside_cycles else together_us
    points = rising(_medians(ranks))
    machine = Machine(
        name=name,
        about=f"calibrated with {alone.model}, batch {alone.rank_batch} a rank: medians of {len(rounds)} rounds",
        nodes=1,
        ranks_per_node=RANKS,
        links=Measured(
            ranks=RANKS,
            points=points,
            busy_points=_busy_points(ranks, points),
            horovod_points=_horovod_points(rounds, least_us=points[0][1]),
        ),
        control_us=points[0][1],
        blocking=True,
        contention=max(1.0, together_us / alone.compute_us),
        stolen=_stolen(ranks, dict(points)),
        copy_gb_s=_copy_gb_s(ranks),
        cycle_cost_us=_CYCLE_US * max(0.0, 1 - together_us / beside_cycles_us),
    )
    return Calibration(machine, alone, len(rounds))


def _together_us(ranks: Sequence[Calibrated]) -> float:
    """A step ends when its slower rank does."""
    return max(_profile(rank.together).compute_us for rank in ranks)


def rising(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """A smaller message is never slower than a larger one: where it seems so, something disturbed it."""
    return tuple((size, min(us for _, us in points[index:])) for index, (size, _) in enumerate(points))


def _medians(ranks: Sequence[Calibrated]) -> list[tuple[float, float]]:
    return [(size, median(us[size] for us in map(_walls, ranks))) for size in _walls(ranks[0])]


def _walls(rank: Calibrated) -> dict[int, float]:
    return {size: wall_us for size, wall_us, _ in rank.all_reduces}


def _busy_points(ranks: Sequence[Calibrated], points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Beside computing; larger sizes, which were not tried so, by the same factor as the largest that was."""
    sent: dict[int, list[float]] = {}
    for rank in ranks:
        for loaded in rank.loaded:
            if loaded.bytes:
                sent.setdefault(loaded.bytes, []).append(loaded.sent_us)
    alone = dict(points)
    tried = {size: max(alone[size], median(found)) for size, found in sent.items()}
    if not tried:
        return ()
    largest = max(tried)
    factor = tried[largest] / alone[largest]
    return rising([(size, tried.get(int(size), factor * us)) for size, us in points])


def _horovod_points(rounds: Sequence[CalibrationRound], least_us: float) -> tuple[tuple[float, float], ...]:
    ranks = [rank for one in rounds for rank in one.beside_cycles if rank.all_reduces]
    if not ranks:
        return ()
    found = rising(_medians(ranks))
    return tuple((size, least_us + us - found[0][1]) for size, us in found)


def _stolen(ranks: Sequence[Calibrated], alone_us: dict[float, float]) -> float:
    shares = []
    by_size: dict[int, list[float]] = {}
    for rank in ranks:
        for loaded in rank.loaded:
            by_size.setdefault(loaded.bytes, []).append(loaded.step_us)
    idle_us = median(by_size.pop(0, [float("inf")]))
    for size, steps_us in by_size.items():
        if alone_us[size] > _LEAST_SHARE * idle_us:
            shares.append((median(steps_us) - idle_us) / alone_us[size])
    return min(1.0, max(0.0, median(shares))) if shares else 0.0


def _copy_gb_s(ranks: Sequence[Calibrated]) -> float | None:
    """None: of rounds without copies."""
    found = [1e-3 * max(_walls(rank)) / rank.copy_us for rank in ranks if rank.copy_us]
    return median(found) if found else None


def _profile(fields: dict[str, Any]) -> Profile:
    layers = tuple(
        Layer(layer["name"], layer["backward_us"], tuple(layer["gradient_bytes"])) for layer in fields["layers"]
    )
    return Profile(**{**fields, "layers": layers})
