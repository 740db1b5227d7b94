"""The time of one all-reduce: NCCL's ring and tree as its tuner estimates them, or interpolated measured times.

NCCL (src/graph/tuning.cc), N ranks on n nodes with p each, S bytes, B bytes per second, in microseconds:

    ring   base + (2(N−1) − 2(n−1))·L_within + 2(n−1)·L_between + 2(N−1)/N · S/B
    tree   base + 2·((p−1)·L_within + ⌊log₂ n⌋·L_between)       + 2 · S/(0.9 B)

each with two protocols: Simple, and LL, which has smaller latencies and a quarter (ring) or 1/3.8 (tree) of B.
Left out of the tuner: LL128, CollNet, its correction tables for medium sizes and its plateau factor for rings.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from bigbatch.scaling.machine import AllReduceTimes, Machine, MeasuredLinks, NcclLinks, SizesAndTimes


class Cost(NamedTuple):
    """One all-reduce. `latency_us` does not depend on its size, `transfer_us` does."""

    latency_us: float
    transfer_us: float
    algorithm: str

    @property
    def us(self) -> float:
        return self.latency_us + self.transfer_us


class _Latency(NamedTuple):
    base: float
    nvlink: float
    pcie: float
    network: float


# microseconds; PCIe's tree latency in Simple is in tuning.cc's CollNet column, as trees are newer than its PCIe row
_RING = {"Simple": _Latency(8.4, 3.4, 5.7, 14.0), "LL": _Latency(6.6, 0.6, 1.0, 2.7)}
_TREE = {"Simple": _Latency(8.4, 4.0, 5.5, 14.0), "LL": _Latency(6.8, 0.6, 1.0, 5.0)}
_RING_BANDWIDTH = {"Simple": 1.0, "LL": 1 / 4}  # fractions
_TREE_BANDWIDTH = {"Simple": 0.9, "LL": 0.9 / 3.8}
_NOTHING = Cost(0.0, 0.0, "none")


@dataclass(frozen=True)
class AllReduceCosts:
    """The costs of all-reduces of any size over `ranks` ranks of a machine.

    `zero_cost` may name "latency" or "transfer": the same algorithm without that term, to see what it costs.
    """

    ranks: int
    machine: Machine
    engine: str = "ddp"
    zero_cost: Collection[str] = ()

    def alone(self, size_bytes: float) -> Cost:
        """The cost while the ranks do not compute."""
        return self._cost(size_bytes, self._times.points if self._times else ())

    def busy_us(self, size_bytes: float) -> float:
        """The time while the ranks compute."""
        return self._cost(size_bytes, (self._times.busy_points or self._times.points) if self._times else ()).us

    def cpu_us(self, size_bytes: float) -> float:
        """The CPU time that it then takes from computing."""
        points = self._times.cpu_points if self._times else ()
        return self._cost(size_bytes, points).us if points else 0.0

    @cached_property
    def _times(self) -> AllReduceTimes | None:
        links = self.machine.links
        if isinstance(links, NcclLinks):
            return None
        return links.horovod if self.engine == "horovod" and links.horovod else links

    @cached_property
    def _algorithms(self) -> list[_Algorithm]:
        links = self.machine.links
        return (
            _nccl_algorithms(self.ranks, *self.machine.layout(self.ranks), links)
            if isinstance(links, NcclLinks)
            else []
        )

    @cached_property
    def _factors(self) -> tuple[float, float]:
        return float("latency" not in self.zero_cost), float("transfer" not in self.zero_cost)

    def _cost(self, size_bytes: float, points: SizesAndTimes) -> Cost:
        if self.ranks == 1:
            return _NOTHING
        links = self.machine.links
        if isinstance(links, MeasuredLinks):
            cost = _interpolate(size_bytes, self.ranks, links.ranks, points)
        else:
            _, best = min((one.latency_us + size_bytes * one.us_per_byte, one) for one in self._algorithms)
            cost = Cost(best.latency_us, size_bytes * best.us_per_byte, best.name)
        latency, transfer = self._factors
        return Cost(latency * cost.latency_us, transfer * cost.transfer_us, cost.algorithm)


class _Algorithm(NamedTuple):
    latency_us: float
    us_per_byte: float
    name: str


def _nccl_algorithms(ranks: int, nodes: int, per_node: int, links: NcclLinks) -> list[_Algorithm]:
    """Return every algorithm and protocol that NCCL may choose from."""
    # a ring or tree through several nodes is as fast as its slowest link
    gb_s = links.within_gb_s if nodes == 1 else min(links.within_gb_s, links.between_gb_s)
    found = []
    if links.algorithms in ("ring", "auto"):
        between = 2 * (nodes - 1)
        within = 2 * (ranks - 1) - between
        for protocol, latency in _RING.items():
            latency_us = latency.base + within * getattr(latency, links.within) + between * latency.network
            us_per_byte = 2 * (ranks - 1) / ranks / (gb_s * 1e3 * _RING_BANDWIDTH[protocol])
            found.append(_Algorithm(latency_us, us_per_byte, f"ring {protocol}"))
    if links.algorithms in ("tree", "auto"):
        for protocol, latency in _TREE.items():
            hops_us = (per_node - 1) * getattr(latency, links.within) + (nodes.bit_length() - 1) * latency.network
            us_per_byte = 2 / (gb_s * 1e3 * _TREE_BANDWIDTH[protocol])
            found.append(_Algorithm(latency.base + 2 * hops_us, us_per_byte, f"tree {protocol}"))
    return found


def _interpolate(size_bytes: float, ranks: int, measured_ranks: int, points: SizesAndTimes) -> Cost:
    """Interpolate between the measured points, and extrapolate from the last two; other numbers of ranks as a ring."""
    first_us = points[0][1]
    segment = next((pair for pair in pairwise(points) if size_bytes <= pair[1][0]), (points[-2], points[-1]))
    (small, short), (large, long) = segment
    measured_us = short + max(0.0, size_bytes - small) * (long - short) / (large - small)
    latency = (ranks - 1) / (measured_ranks - 1)
    transfer = ((ranks - 1) / ranks) / ((measured_ranks - 1) / measured_ranks)
    return Cost(first_us * latency, max(0.0, measured_us - first_us) * transfer, "measured")
