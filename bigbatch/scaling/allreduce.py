"""What one all-reduce costs. NCCL's ring and tree as its own tuner estimates them, or a table of measured times.

NCCL (src/graph/tuning.cc), N ranks on n nodes with p each, S bytes, B bytes a second, in microseconds:

    ring   base + (2(N−1) − 2(n−1))·L_within + 2(n−1)·L_between + 2(N−1)/N · S/B
    tree   base + 2·((p−1)·L_within + ⌊log₂ n⌋·L_between)       + 2 · S/(0.9 B)

each with two protocols: Simple, and LL, which has smaller latencies and a quarter (ring) or 1/3.8 (tree) of B.
Left out of the tuner: LL128, CollNet, its correction tables for middle sizes and its plateau factor for rings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Literal, NamedTuple

from bigbatch.scaling.machine import Machine, MeasuredLinks, NcclLinks

Kind = Literal["points", "busy_points", "cpu_points"]  # of AllReduceTimes


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
    """The time of one all-reduce of `size_bytes` over `ranks` ranks of a machine, alone on its links."""
    return costs(ranks, machine, free)(size_bytes)


def costs(
    ranks: int,
    machine: Machine,
    free: Collection[str] = (),
    *,
    engine: str = "ddp",
    kind: Kind = "points",
) -> Callable[[float], Cost]:
    """The same for any size: what depends on the ranks alone is computed once.

    `kind`: alone, while the ranks compute, or what it then takes from computing; by `engine`, where the machine's
    description tells the difference.

    `free` may name "latency" or "transfer": the same choice of algorithm without that term, to see what it is worth.
    """
    if ranks == 1:
        return lambda _: Cost(0.0, 0.0, "none")
    links = machine.links
    points = _points(links, engine, kind) if isinstance(links, MeasuredLinks) else ()
    if kind == "cpu_points" and not points:
        return lambda _: Cost(0.0, 0.0, "none")
    lines = [] if isinstance(links, MeasuredLinks) else _lines(ranks, *machine.layout(ranks), links)
    latency, transfer = float("latency" not in free), float("transfer" not in free)

    def of(size_bytes: float) -> Cost:
        if isinstance(links, MeasuredLinks):
            found = _interpolated(size_bytes, ranks, links, points)
        else:
            _, line = min((line.latency_us + size_bytes * line.us_per_byte, line) for line in lines)
            found = Cost(line.latency_us, size_bytes * line.us_per_byte, line.how)
        return Cost(latency * found.latency_us, transfer * found.transfer_us, found.how)

    return of


def _points(links: MeasuredLinks, engine: str, kind: Kind) -> tuple[tuple[float, float], ...]:
    timed = links.horovod if engine == "horovod" and links.horovod else links
    if kind == "cpu_points":
        return timed.cpu_points
    return (timed.busy_points if kind == "busy_points" else ()) or timed.points


class _Line(NamedTuple):
    latency_us: float
    us_per_byte: float
    how: str


def _lines(ranks: int, nodes: int, per_node: int, links: NcclLinks) -> list[_Line]:
    """Every algorithm and protocol that NCCL may choose from."""
    # a ring or tree through several nodes is as fast as its slowest link
    gb_s = links.within_gb_s if nodes == 1 else min(links.within_gb_s, links.between_gb_s)
    found = []
    if links.algorithms in ("ring", "auto"):
        between = 2 * (nodes - 1)
        within = 2 * (ranks - 1) - between
        for protocol, latency in _RING.items():
            latency_us = latency.base + within * getattr(latency, links.within) + between * latency.network
            us_per_byte = 2 * (ranks - 1) / ranks / (gb_s * 1e3 * _RING_SHARE[protocol])
            found.append(_Line(latency_us, us_per_byte, f"ring {protocol}"))
    if links.algorithms in ("tree", "auto"):
        for protocol, latency in _TREE.items():
            hops_us = (per_node - 1) * getattr(latency, links.within) + (nodes.bit_length() - 1) * latency.network
            us_per_byte = 2 / (gb_s * 1e3 * _TREE_SHARE[protocol])
            found.append(_Line(latency.base + 2 * hops_us, us_per_byte, f"tree {protocol}"))
    return found


def _interpolated(size_bytes: float, ranks: int, links: MeasuredLinks, points: tuple[tuple[float, float], ...]) -> Cost:
    """Lines between the measured points, the last one prolonged; taken to other numbers of ranks as a ring's terms."""
    first_us = points[0][1]
    segment = next((pair for pair in pairwise(points) if size_bytes <= pair[1][0]), (points[-2], points[-1]))
    (small, short), (large, long) = segment
    measured_us = short + max(0.0, size_bytes - small) * (long - short) / (large - small)
    latency = (ranks - 1) / (links.ranks - 1)
    transfer = ((ranks - 1) / ranks) / ((links.ranks - 1) / links.ranks)
    return Cost(first_us * latency, max(0.0, measured_us - first_us) * transfer, "measured")
