"""Many numbers of ranks: the expected step, the band of the jitter, and what each term of the step is worth.

Terms: jitter (waiting for the slowest rank), latency and transfer of all-reduces, negotiation (Horovod's questions) and
sharing (what computing loses where ranks compute and send on the same cores).

Efficiency is the weak-scaling one: the step of one rank over the step of N ranks with the same batch each. The band
holds nine of ten steps: the slowest rank's factor between its 5 % and its 95 % quantile.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean as mean
from typing import Any

from pydantic import BaseModel, ValidationError

from bigbatch.errors import Problem, did_you_mean
from bigbatch.parts import explain
from bigbatch.scaling import ddp, horovod
from bigbatch.scaling.jitter import expected_slowdown, representative_slowdowns, slowdown_quantile
from bigbatch.scaling.machine import Machine
from bigbatch.scaling.profile import Profile
from bigbatch.scaling.step import Step

ENGINES: dict[str, Any] = {"ddp": ddp, "horovod": horovod}
BAND = (0.05, 0.95)
TERMS = ("jitter", "latency", "transfer", "negotiation", "sharing")
MOST_RANKS = 10_000_000


@dataclass(frozen=True)
class Point:
    """One number of ranks. `worth_us[term]`: by how much the step would be shorter if that term alone were free."""

    engine: str
    ranks: int
    nodes: int
    step_us: float
    exposed_us: float
    efficiency: float
    low: float
    high: float
    all_reduces: int
    worth_us: dict[str, float]

    @property
    def bends(self) -> str:
        """The term that is worth most."""
        most = max(TERMS, key=lambda term: self.worth_us[term])
        return most if self.worth_us[most] > 0 else "nothing"


def configure_engine(engine: str, options: dict[str, Any]) -> BaseModel:
    """The options of an engine as its Config."""
    if engine not in ENGINES:
        raise Problem(f"no simulated engine called '{engine}'{did_you_mean(engine, ENGINES)} Use ddp or horovod")
    config: type[BaseModel] = ENGINES[engine].Config
    try:
        return config.model_validate(options)
    except ValidationError as error:
        raise Problem(explain(error, f"engine '{engine}'", config)) from error


@dataclass(frozen=True)
class StepSimulator:
    """Everything but the number of ranks."""

    profile: Profile
    engine: str
    config: BaseModel
    machine: Machine

    def one_step(self, ranks: int) -> Step:
        """The expected step as a picture: what ran when."""
        profile = self._slowed(expected_slowdown(self.machine.jitter, ranks), ranks, self.machine)
        return ENGINES[self.engine].simulate_step(profile, self.config, self.machine, ranks)

    def step_us(self, ranks: int, *, share: float | None = None, free: Collection[str] = ()) -> float:
        """The expected step; with `share`, what this share of steps stays below; with `free`, terms at no cost."""
        return mean(step.step_us for step in self._steps(ranks, share, free))

    def efficiency(self, ranks: int) -> float:
        return self.profile.compute_us / self.step_us(ranks)

    def point(self, ranks: int) -> Point:
        steps = self._steps(ranks)
        step_us = mean(step.step_us for step in steps)
        compute_us = self.profile.compute_us
        fast_us, slow_us = (self.step_us(ranks, share=share) for share in BAND)
        return Point(
            engine=self.engine,
            ranks=ranks,
            nodes=self.machine.layout(ranks)[0],
            step_us=step_us,
            # what computing itself loses to other ranks on the same cores is not communication
            exposed_us=mean(step.exposed_us for step in steps),
            efficiency=compute_us / step_us,
            low=compute_us / slow_us,
            high=compute_us / fast_us,
            all_reduces=len(self.one_step(ranks).sent),
            # a later start can put two tensors into one buffer and save more than it costs: that is worth nothing
            worth_us={term: max(0.0, step_us - self.step_us(ranks, free=(term,))) for term in TERMS},
        )

    def _steps(self, ranks: int, share: float | None = None, free: Collection[str] = ()) -> list[Step]:
        """Steps whose mean is the expected one, see `step_us`."""
        factors: tuple[float, ...] = (1.0,)
        if "jitter" not in free:
            jitter = self.machine.jitter
            factors = (
                representative_slowdowns(jitter, ranks) if share is None else (slowdown_quantile(jitter, ranks, share),)
            )
        machine = self.machine.unshared() if "sharing" in free else self.machine
        profile = self._slowed(1.0, ranks, machine)
        return ENGINES[self.engine].simulate_steps(profile, factors, self.config, machine, ranks, free=free)

    def _slowed(self, factor: float, ranks: int, machine: Machine) -> Profile:
        return self.profile.slowed(factor * (machine.contention if ranks > 1 else 1.0))


def counts(to: int, points: int, ranks_per_node: int) -> list[int]:
    """At most `points` numbers of ranks from 1 to `to`, evenly in their logarithm, beyond a node in whole nodes."""
    if not 1 <= to <= MOST_RANKS:
        raise Problem(f"--to {to} makes no sense: use a number of ranks from 1 to {MOST_RANKS:,}")
    if points < 1:
        raise Problem(f"--points {points} makes no curve: use 1 or more")
    if points == 1:
        return [to]
    # among the small numbers several fall together: a finer grid makes up for them
    for gaps in range(points - 1, 4 * points):
        found = {_whole_nodes(to ** (index / gaps), to, ranks_per_node) for index in range(gaps + 1)}
        if len(found) >= points:
            break
    return sorted(found)


def _whole_nodes(ranks: float, to: int, ranks_per_node: int) -> int:
    if ranks <= ranks_per_node:
        return max(1, round(ranks))
    return min(to, round(ranks / ranks_per_node) * ranks_per_node)


def curve(
    profile: Profile, engines: dict[str, BaseModel], machine: Machine, ranks: Sequence[int]
) -> dict[str, list[Point]]:
    """For each engine a point for each number of ranks."""
    settings = {name: StepSimulator(profile, name, config, machine) for name, config in engines.items()}
    return {name: [setting.point(count) for count in ranks] for name, setting in settings.items()}
