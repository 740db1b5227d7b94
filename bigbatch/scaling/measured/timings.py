"""From the records of rounds to step times, phases and efficiencies, or to the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from types import MappingProxyType

from bigbatch.scaling.measured.cases import Case, Comparison
from bigbatch.scaling.measured.rank_program import Record

MOST_WALL_OVER_CPU = 1.1  # of one process that never waits: above it, others had its core
MOST_CORES_MISSING = 0.25


@dataclass(frozen=True)
class Round:
    """One start of one case. `others_cores`: how many cores other processes used meanwhile, where that is known."""

    case: Case
    number: int
    records: tuple[Record, ...]
    others_cores: float | None
    load_1min: float

    @property
    def wall_s(self) -> float:
        """The median step; a step ends when its slowest rank does."""
        return median(max(steps) for steps in zip(*(record.wall_s for record in self.records), strict=True))

    @property
    def cpu_s(self) -> float:
        """The median step's CPU seconds a rank."""
        return median(mean(steps) for steps in zip(*(record.cpu_s for record in self.records), strict=True))

    @property
    def silent_s(self) -> list[float]:
        """Each step in which nothing is sent; it ends when its slowest rank does."""
        return [max(steps) for steps in zip(*(record.silent_s for record in self.records), strict=True)]


@dataclass(frozen=True)
class Phases:
    """Medians over the steps with notes and over ranks, in seconds; None where an engine does not show them."""

    forward_s: float
    backward_s: float
    exposed_s: float | None
    overlapped_s: float | None
    update_s: float
    negotiation_s: float | None
    sent_bytes: tuple[int, ...]  # of one step of rank 0, in the order of sending


@dataclass(frozen=True)
class Timing:
    """All rounds of a case."""

    case: Case
    rounds: tuple[Round, ...]
    traced: Round | None = None  # one more with a trace, for its notes alone: tracing takes time

    @property
    def best(self) -> Round:
        return min(self.rounds, key=lambda one: one.wall_s)

    @property
    def best_s(self) -> float:
        return self.best.wall_s

    @property
    def median_s(self) -> float:
        return median(one.wall_s for one in self.rounds)

    @property
    def best_cpu_s(self) -> float:
        return min(one.cpu_s for one in self.rounds)

    @property
    def phases(self) -> Phases | None:
        records = (self.traced or self.best).records
        steps = [step for record in records for step in record.noted]
        if not steps:
            return None
        sent = sorted(records[0].noted[-1].sent, key=lambda one: one.start_s)
        overlapped = [step.overlapped_s for step in steps if step.sent]
        return Phases(
            forward_s=median(step.forward_s for step in steps),
            backward_s=median(step.backward_s for step in steps),
            exposed_s=_median(step.exposed_s for step in steps),
            overlapped_s=_median(overlapped),
            update_s=median(step.update_s for step in steps),
            negotiation_s=_median(step.negotiation_s for step in steps),
            sent_bytes=tuple(one.bytes for one in sent),
        )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


@dataclass(frozen=True)
class Efficiency:
    """Measured throughput over ranks x that of one process. `value` is None where `refused` says why."""

    comparison: Comparison
    alone: Timing
    ranks: Timing
    value: float | None
    refused: str = ""


def timings(rounds: Sequence[Round], traced: Mapping[Case, Round] = MappingProxyType({})) -> dict[Case, Timing]:
    by_case: dict[Case, list[Round]] = {}
    for one in rounds:
        by_case.setdefault(one.case, []).append(one)
    return {case: Timing(case, tuple(found), traced.get(case)) for case, found in by_case.items()}


def efficiency(comparison: Comparison, found: dict[Case, Timing], cores: int) -> Efficiency:
    """Weak: T₁(B) / T_N(B). Strong: T₁(G) / (N · T_N(G/N)). Each T the best round's."""
    alone, ranks = found[comparison.alone], found[comparison.ranks]
    refused = reason_to_refuse(alone.best, ranks.best, cores)
    value = None
    if not refused:
        done = comparison.ranks.ranks * comparison.ranks.rank_batch / ranks.best_s
        ideal = comparison.ranks.ranks * comparison.alone.rank_batch / alone.best_s
        value = done / ideal
    return Efficiency(comparison, alone, ranks, value, refused)


def reason_to_refuse(alone: Round, ranks: Round, cores: int) -> str:
    """Why an efficiency would say more about the machine's other work than about the engine; '' where it would not."""
    wall_over_cpu = alone.wall_s / alone.cpu_s
    if wall_over_cpu > MOST_WALL_OVER_CPU:
        return (
            f"the machine was too busy: one process alone needed {wall_over_cpu:.2f} times its CPU time "
            f"(load {alone.load_1min:.1f}), measure again when it is idle"
        )
    if ranks.others_cores is None:  # ranks were on other machines, or this one does not tell
        return ""
    if ranks.case.ranks > cores:
        return f"{ranks.case.ranks} ranks took turns on {cores} cores: measure with at most {cores} ranks here"
    if ranks.case.ranks + ranks.others_cores - cores > MOST_CORES_MISSING:
        return (
            f"the machine was too busy: other processes used {ranks.others_cores:.1f} of its {cores} cores "
            f"(load {ranks.load_1min:.1f}), measure again when it is idle"
        )
    return ""
