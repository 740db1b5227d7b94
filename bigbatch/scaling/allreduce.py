"""What one all-reduce costs. NCCL's ring and tree as its own tuner estimates them, or a table of measured times.

NCCL (src/graph/tuning.cc), N ranks on n nodes with p each, S bytes, B bytes a second, in microseconds:

    ring   base + (2(N−1) − 2(n−1))·L_within + 2(n−1)·L_between + 2(N−1)/N · S/B
    tree   base + 2·((p−1)·L_within + ⌊log₂ n⌋·L_between)       + 2 · S/(0.9 B)

each with two protocols: Simple, and LL, which has smaller latencies and a quarter (ring) or 1/3.8 (tree) of B.
Left out of the tuner: LL128, CollNet, its correction tables for middle sizes and its plateau factor for rings.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple

from bigbatch.scaling.machine import Machine, Measured, Nccl


class Cost(NamedTuple):
    """One all-reduce: `latency_us` does not depend on its size, `transfer_us` does."""

    latency_us: float
    transfer_us: float
    how: str

    @property
    def us(self) -> float:
        return self.latency_us + self.transfer_us


class _Latency(NamedTuple):
    base: float
    nvlink: float
    pcie: float
    network: float


# microseconds; PCIe's tree latency in Simple stands in tuning.cc's CollNet column, trees being newer than its PCIe row
_RING = {"Simple": _Latency(8.4, 3.4, 5.7, 14.0), "LL": _Latency(6.6, 0.6, 1.0, 2.7)}
_TREE = {"Simple": _Latency(8.4, 4.0, 5.5, 14.0), "LL": _Latency(6.8, 0.6, 1.0, 5.0)}
_RING_SHARE = {"Simple": 1.0, "LL": 1 / 4}
_TREE_SHARE = {"Simple": 0.9, "LL": 0.9 / 3.8}


def cost(size_bytes: float, ranks: int, machine: Machine, free: Collection[str] = ()) -> Cost:
    """The time of one all-reduce of `size_bytes` over `ranks` ranks of a machine, alone on its links.

    `free` may name "latency" or "transfer": the same choice of algorithm without that term, to see what it is worth.
    """
    chosen = _chosen(size_bytes, ranks, machine)
    return Cost(
        0.0 if "latency" in free else chosen.latency_us, 0.0 if "transfer" in free else chosen.transfer_us, chosen.how
    )


def _chosen(size_bytes: float, ranks: int, machine: Machine) -> Cost:
    if ranks == 1:
        return Cost(0.0, 0.0, "none")
    if isinstance(machine.links, Measured):
        return _interpolated(size_bytes, ranks, machine.links)
    nodes, per_node = machine.layout(ranks)
    found = []
    if machine.links.algorithms in ("ring", "auto"):
        found += [_ring(size_bytes, ranks, nodes, machine.links, protocol) for protocol in _RING]
    if machine.links.algorithms in ("tree", "auto"):
        found += [_tree(size_bytes, nodes, per_node, machine.links, protocol) for protocol in _TREE]
    return min(found, key=lambda one: one.us)


def _ring(size_bytes: float, ranks: int, nodes: int, links: Nccl, protocol: str) -> Cost:
    latency = _RING[protocol]
    between = 2 * (nodes - 1)
    within = 2 * (ranks - 1) - between
    latency_us = latency.base + within * getattr(latency, links.within) + between * latency.network
    bytes_per_us = _bytes_per_us(nodes, links) * _RING_SHARE[protocol]
    return Cost(latency_us, 2 * (ranks - 1) / ranks * size_bytes / bytes_per_us, f"ring {protocol}")


def _tree(size_bytes: float, nodes: int, per_node: int, links: Nccl, protocol: str) -> Cost:
    latency = _TREE[protocol]
    hops = (per_node - 1) * getattr(latency, links.within) + math.floor(math.log2(nodes)) * latency.network
    bytes_per_us = _bytes_per_us(nodes, links) * _TREE_SHARE[protocol]
    return Cost(latency.base + 2 * hops, 2 * size_bytes / bytes_per_us, f"tree {protocol}")


def _bytes_per_us(nodes: int, links: Nccl) -> float:
    """A ring or tree through several nodes is as fast as its slowest link."""
    return 1e3 * (links.within_gb_s if nodes == 1 else min(links.within_gb_s, links.between_gb_s))


def _interpolated(size_bytes: float, ranks: int, links: Measured) -> Cost:
    """Lines between the measured points, the last one prolonged; taken to other numbers of ranks as a ring's terms."""
    points = links.points
    first_us = points[0][1]
    segment = next((pair for pair in pairwise(points) if size_bytes <= pair[1][0]), (points[-2], points[-1]))
    (small, short), (large, long) = segment
    measured_us = short + max(0.0, size_bytes - small) * (long - short) / (large - small)
    latency = (ranks - 1) / (links.ranks - 1)
    transfer = ((ranks - 1) / ranks) / ((links.ranks - 1) / links.ranks)
    return Cost(first_us * latency, max(0.0, measured_us - first_us) * transfer, "measured")
