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

from bigbatch.scaling.machine import AllReduceTimes, Machine, NcclLinks, SizesAndTimes


class Cost(NamedTuple):
    """One all-reduce. `latency_us` does not depend on its size, `transfer_us` does."""

    latency_us: float
    transfer_us: float
    algorithm: str

    @property
    def us(self) -> float:
        return self.latency_us + self.transfer_us


# latencies in microseconds, and the fraction of the bandwidth; PCIe's tree latency in Simple is in tuning.cc's CollNet
# column, as trees are newer than its PCIe row
_NCCL = {
    ("ring", "Simple"): {"base": 8.4, "nvlink": 3.4, "pcie": 5.7, "network": 14.0, "bandwidth": 1.0},
    ("ring", "LL"): {"base": 6.6, "nvlink": 0.6, "pcie": 1.0, "network": 2.7, "bandwidth": 1 / 4},
    ("tree", "Simple"): {"base": 8.4, "nvlink": 4.0, "pcie": 5.5, "network": 14.0, "bandwidth": 0.9},
    ("tree", "LL"): {"base": 6.8, "nvlink": 0.6, "pcie": 1.0, "network": 5.0, "bandwidth": 0.9 / 3.8},
}


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
    def _algorithms(self) -> list[tuple[float, float, str]]:
        links = self.machine.links
        return _nccl_algorithms(self.ranks, self.machine, links) if isinstance(links, NcclLinks) else []

    def _cost(self, size_bytes: float, points: SizesAndTimes) -> Cost:
        links = self.machine.links
        if self.ranks == 1:
            return Cost(0.0, 0.0, "none")
        if isinstance(links, NcclLinks):
            _, latency_us, transfer_us, name = min(
                (latency_us + size_bytes * us_per_byte, latency_us, size_bytes * us_per_byte, name)
                for latency_us, us_per_byte, name in self._algorithms
            )
            cost = Cost(latency_us, transfer_us, name)
        else:
            cost = _interpolate(size_bytes, self.ranks, links.ranks, points)
        latency, transfer = ("latency" not in self.zero_cost), ("transfer" not in self.zero_cost)
        return Cost(latency * cost.latency_us, transfer * cost.transfer_us, cost.algorithm)


def _nccl_algorithms(ranks: int, machine: Machine, links: NcclLinks) -> list[tuple[float, float, str]]:
    """Return latency, time per byte and name of every algorithm and protocol that NCCL may choose from."""
    nodes, per_node = machine.layout(ranks)
    # a ring or tree through several nodes is as fast as its slowest link
    gb_s = links.within_gb_s if nodes == 1 else min(links.within_gb_s, links.between_gb_s)
    hops_between = {"ring": 2 * (nodes - 1), "tree": 2 * (nodes.bit_length() - 1)}
    hops_within = {"ring": 2 * (ranks - 1) - 2 * (nodes - 1), "tree": 2 * (per_node - 1)}
    transfers = {"ring": 2 * (ranks - 1) / ranks, "tree": 2.0}
    return [
        (
            row["base"] + (hops_within[algorithm] * row[links.within] + hops_between[algorithm] * row["network"]),
            transfers[algorithm] / (gb_s * 1e3 * row["bandwidth"]),
            f"{algorithm} {protocol}",
        )
        for (algorithm, protocol), row in _NCCL.items()
        if links.algorithms in (algorithm, "auto")
    ]


def _interpolate(size_bytes: float, ranks: int, measured_ranks: int, points: SizesAndTimes) -> Cost:
    """Interpolate between the measured points, and extrapolate from the last two; other numbers of ranks as a ring."""
    first_us = points[0][1]
    segment = next((pair for pair in pairwise(points) if size_bytes <= pair[1][0]), (points[-2], points[-1]))
    (small, short), (large, long) = segment
    measured_us = short + max(0.0, size_bytes - small) * (long - short) / (large - small)
    latency = (ranks - 1) / (measured_ranks - 1)
    transfer = ((ranks - 1) / ranks) / ((measured_ranks - 1) / measured_ranks)
    return Cost(first_us * latency, max(0.0, measured_us - first_us) * transfer, "measured")
