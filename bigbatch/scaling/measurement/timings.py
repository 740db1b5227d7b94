"""From rounds to step times, phases and efficiencies, or to the reason why there is no efficiency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType

from bigbatch.scaling.measurement.request import Comparison
from bigbatch.scaling.measurement.rounds import MeasuredRound
from bigbatch.scaling.phases import StepPhases
from bigbatch.scaling.workload import EngineConfiguration

MOST_WALL_OVER_CPU = 1.1  # of one process that never waits: above it, others had its core
MOST_CORES_MISSING = 0.25


@dataclass(frozen=True)
class ConfigurationTiming:
    """All rounds of a configuration."""

    configuration: EngineConfiguration
    rounds: tuple[MeasuredRound, ...]
    with_timeline: MeasuredRound | None = None  # one more, for its phases alone: writing a timeline takes time

    @property
    def best(self) -> MeasuredRound:
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
    def phases(self) -> StepPhases | None:
        """Medians over recorded steps and ranks, with the messages of one step of rank 0; None: nothing recorded."""
        ranks = (self.with_timeline or self.best).ranks
        steps = [step for rank in ranks for step in rank.steps]
        if not steps:
            return None
        return StepPhases(
            step_us=median(step.step_us for step in steps),
            forward_us=median(step.forward_us for step in steps),
            backward_us=median(step.backward_us for step in steps),
            exposed_us=_median_of_known(step.exposed_us for step in steps),
            overlapped_us=_median_of_known(step.overlapped_us for step in steps if step.messages),
            update_us=median(step.update_us for step in steps),
            negotiation_us=_median_of_known(step.negotiation_us for step in steps),
            bars=tuple(ranks[0].steps[-1].messages),
        )


def _median_of_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


@dataclass(frozen=True)
class MeasuredEfficiency:
    """Measured throughput over ranks x that of one process. `value` is None where `refusal` gives the reason."""

    comparison: Comparison
    alone: ConfigurationTiming
    ranks: ConfigurationTiming
    value: float | None
    refusal: str = ""


def group_rounds(
    rounds: Sequence[MeasuredRound], with_timeline: Mapping[EngineConfiguration, MeasuredRound] = MappingProxyType({})
) -> dict[EngineConfiguration, ConfigurationTiming]:
    grouped: dict[EngineConfiguration, list[MeasuredRound]] = {}
    for one in rounds:
        grouped.setdefault(one.configuration, []).append(one)
    return {
        configuration: ConfigurationTiming(configuration, tuple(own), with_timeline.get(configuration))
        for configuration, own in grouped.items()
    }


def compute_efficiency(
    comparison: Comparison, timings: Mapping[EngineConfiguration, ConfigurationTiming], cores: int
) -> MeasuredEfficiency:
    """Weak: T₁(B) / T_N(B). Strong: T₁(G) / (N · T_N(G/N)). Each T the best round's."""
    alone, ranks = timings[comparison.alone], timings[comparison.ranks]
    refusal = reason_to_refuse(alone.best, ranks.best, cores)
    value = None
    if not refusal:
        done = comparison.ranks.ranks * comparison.ranks.rank_batch / ranks.best_s
        ideal = comparison.ranks.ranks * comparison.alone.rank_batch / alone.best_s
        value = done / ideal
    return MeasuredEfficiency(comparison, alone, ranks, value, refusal)


def reason_to_refuse(alone: MeasuredRound, ranks: MeasuredRound, cores: int) -> str:
    """Return why an efficiency would tell more about the machine's other work than about the engine, or ''."""
    wall_over_cpu = alone.wall_s / alone.cpu_s
    if wall_over_cpu > MOST_WALL_OVER_CPU:
        return (
            f"the machine was too busy: one process alone needed {wall_over_cpu:.2f} times its CPU time "
            f"(load {alone.load_1min:.1f}), measure again when it is idle"
        )
    if ranks.others_cores is None:  # ranks were on other machines, or /proc is missing
        return ""
    count = ranks.configuration.ranks
    if count > cores:
        return f"{count} ranks took turns on {cores} cores: measure with at most {cores} ranks here"
    if count + ranks.others_cores - cores > MOST_CORES_MISSING:
        return (
            f"the machine was too busy: other processes used {ranks.others_cores:.1f} of its {cores} cores "
            f"(load {ranks.load_1min:.1f}), measure again when it is idle"
        )
    return ""
