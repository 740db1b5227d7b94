"""Scaling curves: the expected step for many numbers of ranks, the band of the jitter, and the cost of each term.

Terms: jitter (waiting for the slowest rank), latency and transfer of all-reduces, negotiation (of Horovod), and sharing
(what computing loses where ranks compute and communicate on the same cores).

Efficiency is that of weak scaling: the step of one rank over the step of N ranks with the same batch per rank. The band
holds nine of ten steps: the slowest rank's factor between its 5 % and its 95 % quantile.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean as mean
from typing import Any

from pydantic import ValidationError

from bigbatch.errors import Problem, did_you_mean
from bigbatch.parts import explain_validation_error
from bigbatch.scaling.ddp import SimulatedDDP
from bigbatch.scaling.horovod import SimulatedHorovod
from bigbatch.scaling.machine import Machine
from bigbatch.scaling.options import SimulationOptions
from bigbatch.scaling.profile import Profile
from bigbatch.scaling.step import SimulatedEngine, SimulatedStep
from bigbatch.scaling.workload import parse_engines, parse_workload

ENGINES: dict[str, type[SimulatedEngine]] = {one.name: one for one in (SimulatedDDP, SimulatedHorovod)}
BAND = (0.05, 0.95)
TERMS = ("jitter", "latency", "transfer", "negotiation", "sharing")


@dataclass(frozen=True)
class ScalingPoint:
    """One number of ranks. `term_cost_us`: by how much the step would be shorter if that term alone cost nothing."""

    engine: str
    ranks: int
    nodes: int
    step_us: float
    exposed_us: float
    efficiency: float
    low: float
    high: float
    all_reduces: int
    term_cost_us: dict[str, float]

    @property
    def bottleneck(self) -> str:
        """The term that costs most."""
        most = max(TERMS, key=lambda term: self.term_cost_us[term])
        return most if self.term_cost_us[most] > 0 else "nothing"


def configure_engine(engine: str, options: Mapping[str, object]) -> SimulatedEngine:
    """Return a simulated engine with these options."""
    if engine not in ENGINES:
        raise Problem(f"no simulated engine called '{engine}'{did_you_mean(engine, ENGINES)} Use ddp or horovod")
    try:
        return ENGINES[engine].model_validate(options)
    except ValidationError as error:
        raise Problem(explain_validation_error(error, f"engine '{engine}'", ENGINES[engine])) from error


@dataclass(frozen=True)
class StepSimulator:
    """Simulates the steps of a model with an engine on a machine, for any number of ranks."""

    profile: Profile
    engine: SimulatedEngine
    machine: Machine

    def expected_step(self, ranks: int) -> SimulatedStep:
        """Simulate one step in which the slowest rank has its expected slowdown."""
        profile = self._slow_down(self.machine.jitter.expected_slowdown(ranks), ranks, self.machine)
        return self.engine.simulate_step(profile, self.machine, ranks)

    def step_us(self, ranks: int, *, quantile: float | None = None, zero_cost: Collection[str] = ()) -> float:
        """The expected step; with `quantile`, that of steps; with `zero_cost`, without the cost of these terms."""
        return mean(step.step_us for step in self._simulate_steps(ranks, quantile, zero_cost))

    def efficiency(self, ranks: int) -> float:
        return self.profile.compute_us / self.step_us(ranks)

    def scaling_point(self, ranks: int) -> ScalingPoint:
        steps = self._simulate_steps(ranks)
        step_us = mean(step.step_us for step in steps)
        compute_us = self.profile.compute_us
        fast_us, slow_us = (self.step_us(ranks, quantile=quantile) for quantile in BAND)
        return ScalingPoint(
            engine=self.engine.name,
            ranks=ranks,
            nodes=self.machine.layout(ranks)[0],
            step_us=step_us,
            # compute time lost to other ranks on the same cores is not communication
            exposed_us=mean(step.exposed_us for step in steps),
            efficiency=compute_us / step_us,
            low=compute_us / slow_us,
            high=compute_us / fast_us,
            all_reduces=len(self.expected_step(ranks).messages),
            # a later start can fuse two tensors and save more than it costs: such a term costs nothing
            term_cost_us={term: max(0.0, step_us - self.step_us(ranks, zero_cost=(term,))) for term in TERMS},
        )

    def _simulate_steps(
        self, ranks: int, quantile: float | None = None, zero_cost: Collection[str] = ()
    ) -> list[SimulatedStep]:
        """Simulate steps whose mean is the expected one, see `step_us`."""
        jitter = self.machine.jitter
        factors: tuple[float, ...] = (1.0,)
        if "jitter" not in zero_cost and quantile is not None:
            factors = (jitter.slowdown_quantile(ranks, quantile),)
        elif "jitter" not in zero_cost:
            factors = jitter.representative_slowdowns(ranks)
        machine = self.machine.without_core_sharing() if "sharing" in zero_cost else self.machine
        profile = self._slow_down(1.0, ranks, machine)
        return self.engine.simulate_steps(profile, factors, machine, ranks, zero_cost=zero_cost)

    def _slow_down(self, factor: float, ranks: int, machine: Machine) -> Profile:
        return self.profile.scale_times(factor * (machine.contention if ranks > 1 else 1.0))


def rank_counts(to: int, points: int, ranks_per_node: int) -> list[int]:
    """Return at most `points` numbers of ranks from 1 to `to`, evenly spaced in their logarithm.

    Beyond a node they are whole nodes.
    """
    if points == 1:
        return [to]
    # several small numbers round to the same: a finer grid makes up for them
    for gaps in range(points - 1, 4 * points):
        counts = (to ** (index / gaps) for index in range(gaps + 1))
        found = {
            max(1, round(count)) if count <= ranks_per_node else round(count / ranks_per_node) * ranks_per_node
            for count in counts
        }
        if len(found) >= points:
            break
    return sorted({min(to, count) for count in found})


@dataclass(frozen=True)
class Simulation:
    """The scaling curves of one model on one machine, by engine."""

    profile: Profile
    machine: Machine
    simulators: Mapping[str, StepSimulator]
    curves: Mapping[str, Sequence[ScalingPoint]]
    cpu_seconds: float

    @property
    def points(self) -> list[ScalingPoint]:
        return [point for curve in self.curves.values() for point in curve]

    def rows(self) -> list[dict[str, Any]]:
        """One flat record per point, for CSV and JSON."""
        rows = []
        for point in self.points:
            fields = asdict(point)
            costs = {f"{term}_cost_us": cost for term, cost in fields.pop("term_cost_us").items()}
            rows.append(fields | costs | {"bottleneck": point.bottleneck})
        return rows

    def to_json(self) -> dict[str, Any]:
        return {
            "simulated": True,
            "model": self.profile.model,
            "rank_batch": self.profile.rank_batch,
            "times": self.profile.source,
            "one_rank_step_us": self.profile.compute_us,
            "gradient_bytes": self.profile.gradient_bytes,
            "machine": self.machine.model_dump(mode="json"),
            "engines": {name: one.engine.model_dump(mode="json") for name, one in self.simulators.items()},
            "points": self.rows(),
            "cpu_seconds": self.cpu_seconds,
        }


def simulate(
    profile: Profile, engines: Iterable[SimulatedEngine], machine: Machine, ranks: Sequence[int]
) -> Simulation:
    """Simulate a model with each engine on each number of ranks."""
    started = time.process_time()
    simulators = {engine.name: StepSimulator(profile, engine, machine) for engine in engines}
    curves = {name: [one.scaling_point(count) for count in ranks] for name, one in simulators.items()}
    return Simulation(profile, machine, simulators, curves, time.process_time() - started)


def run_simulation(options: SimulationOptions) -> Simulation:
    """Check all options, then simulate the model that they name."""
    names = parse_engines(options.engines, ENGINES)
    workload, machine_settings = parse_workload(options, names)
    engines = [configure_engine(name, workload.engine_options[name]) for name in names]
    machine, ranks, profiles = options.build(workload, machine_settings)
    return simulate(profiles(options.rank_batch), engines, machine, ranks)
