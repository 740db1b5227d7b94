"""Efficiencies that others measured beside those of the simulator: fitted on one point, tested on the others.

The one fitted number is the jitter of Summit; every machine below uses it. Where a publication does not give what a
simulation needs (layers, times, batch per rank), the point is tested only against the bound that remains when all
communication is hidden: waiting for the slowest rank.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bigbatch.scaling.machine import FrozenModel, Jitter, Machine, find_machine
from bigbatch.scaling.profile import Profile
from bigbatch.scaling.simulation import BAND, StepSimulator, configure_engine
from bigbatch.scaling.workload import imagenet_layers

AGREES, NEAR = 0.01, 0.05  # of efficiency; published ones are rounded to about a point


class PublishedPoint(FrozenModel):
    """An efficiency that somebody measured, and what is known of how."""

    what: str
    ranks: int
    efficiency: float
    source: str
    machine: str = "summit"
    model: str | None = None  # None: layers and times are not known
    depth: int | None = None
    rank_batch: int = 64
    samples_per_second: float = 0.0  # of one rank
    throughput_source: str = ""
    engine: str = "horovod"
    options: Mapping[str, float] = {}
    assumed: str = ""
    caveat: str = ""  # what may explain an error


def _read_points() -> list[PublishedPoint]:
    fields = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
    return [PublishedPoint(**{**fields["groups"][point.pop("group")], **point}) for point in fields["points"]]


FITTED, *TESTED = _read_points()


@dataclass(frozen=True)
class PublishedComparison:
    """A published point and the simulated one. `least` and `most`: over library versions (rings, trees, cache)."""

    published: PublishedPoint
    efficiency: float
    low: float
    high: float
    least: float
    most: float
    bottleneck: str

    @property
    def fitted(self) -> bool:
        return self.published is FITTED

    @property
    def error(self) -> float:
        """Simulated minus published efficiency."""
        return self.efficiency - self.published.efficiency

    @property
    def verdict(self) -> str:
        if self.fitted:
            return "fitted"
        if self.published.model is None and self.error > AGREES:
            return "under the bound"
        if abs(self.error) <= AGREES:
            return "within 1 point"
        return "within 5 points" if abs(self.error) <= NEAR else "fails"


def compare_published(jitter: Jitter | None = None) -> list[PublishedComparison]:
    """Simulate every published point, with Summit's jitter or another one."""
    return [_compare(point, jitter) for point in (FITTED, *TESTED)]


def profile_point(point: PublishedPoint, machine: Machine) -> Profile:
    """Return what one rank of a published point computes in a step."""
    assert machine.device is not None
    assert point.model is not None
    profile = machine.device.profile(point.what, imagenet_layers(point.model, point.depth), point.rank_batch)
    return profile.at_throughput(point.samples_per_second, point.throughput_source)


def _compare(point: PublishedPoint, jitter: Jitter | None) -> PublishedComparison:
    machine = find_machine(point.machine)
    if jitter is not None:
        machine = machine.model_copy(update={"jitter": jitter})
    if point.model is None:  # nothing is known but the waiting for the slowest rank
        slow, fast = (machine.jitter.slowdown_quantile(point.ranks, quantile) for quantile in reversed(BAND))
        efficiency = 1 / machine.jitter.expected_slowdown(point.ranks)
        return PublishedComparison(point, efficiency, 1 / slow, 1 / fast, efficiency, efficiency, "jitter")
    profile = profile_point(point, machine)

    def simulator(machine: Machine, **version: Any) -> StepSimulator:
        return StepSimulator(profile, configure_engine(point.engine, {**point.options, **version}), machine)

    found = simulator(machine).scaling_point(point.ranks)
    caches = ({"cache_capacity": 1024}, {"cache_capacity": 0}) if point.engine == "horovod" else ({},)
    versions = [
        simulator(machine.with_settings({"links.algorithms": algorithms}), **cache).efficiency(point.ranks)
        for algorithms in ("ring", "auto")
        for cache in caches
    ]
    return PublishedComparison(
        point, found.efficiency, found.low, found.high, min(versions), max(versions), found.bottleneck
    )
