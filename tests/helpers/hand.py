"""A training small enough to be computed by hand: three layers, links of 100 µs and 1 GB/s between two ranks."""

from __future__ import annotations

from typing import Any

from bigbatch.scaling.machine import Machine, MeasuredLinks, find_machine
from bigbatch.scaling.profile import Layer, Profile

SUMMIT, PASCAL, HERE = map(find_machine, ("summit", "pascal", "here"))
assert SUMMIT.device is not None
assert PASCAL.device is not None
V100, P100 = SUMMIT.device, PASCAL.device

PROFILE = Profile(
    model="three",
    rank_batch=8,
    forward_us=1000.0,
    layers=(Layer("c", 500.0, (800_000,)), Layer("b", 700.0, (400_000,)), Layer("a", 900.0, (300_000,))),
    update_us=200.0,
)


def links(us_per_megabyte: float = 1000.0) -> MeasuredLinks:
    return MeasuredLinks(ranks=2, points=((0, 100.0), (1e6, 100.0 + us_per_megabyte)))


def pair(**fields: Any) -> Machine:
    about: dict[str, Any] = {"name": "pair", "nodes": 1, "ranks_per_node": 2, "links": links(), "control_us": 50.0}
    return Machine(**(about | fields))
