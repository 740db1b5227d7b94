"""The Chrome trace that the torch profiler of one rank wrote, its moments in nanoseconds since 1970."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from bigbatch.errors import Problem

MARK = "bigbatch "  # the prefix of our own marks
STEP, FORWARD, BACKWARD, UPDATE, GRADIENT = (
    f"{MARK}{what}" for what in ("step", "forward", "backward", "update", "gradient")
)
_COLLECTIVES = (
    "gloo:",
    "nccl:",
    "nccldevkernel",
    "ncclkernel",
)  # torch's names of collectives, and NCCL's of its kernels
_BYTES = {"double": 8, "float": 4, "c10::half": 2, "c10::bfloat16": 2, "long int": 8, "int": 4, "unsigned char": 1}


class Span(NamedTuple):
    """An event with a duration, on one thread."""

    name: str
    start_ns: int
    end_ns: int
    thread: int | str = 0
    bytes: int = 0


@dataclass(frozen=True)
class ProfilerTrace:
    """The events of one rank, each with `start_ns` and `end_ns`."""

    rank: int
    events: tuple[dict[str, Any], ...]

    def marks(self, name: str) -> list[Span]:
        """Return our own marks with this name or with this first word, in order of time."""
        return sorted(
            (
                Span(event["name"], event["start_ns"], event["end_ns"], event["tid"])
                for event in self.events
                if event["name"] == name or event["name"].startswith(f"{name} ")
            ),
            key=lambda span: span.start_ns,
        )

    def collectives(self) -> list[Span]:
        """Return the collectives, in order of time."""
        return sorted(
            (
                Span(event["name"], event["start_ns"], event["end_ns"], event["tid"], _collective_bytes(event))
                for event in self.events
                if is_collective(event)
            ),
            key=lambda span: span.start_ns,
        )


def parse_profiler_trace(text: str, rank: int) -> ProfilerTrace:
    try:
        trace = json.loads(text)
        base_ns = int(trace["baseTimeNanoseconds"])
        return ProfilerTrace(rank, tuple(_finished_events(trace["traceEvents"], base_ns)))
    except (ValueError, KeyError, TypeError) as error:
        raise Problem(f"rank {rank} returned no trace of the torch profiler ({error!r}): rerun the trace") from error


def _finished_events(events: list[dict[str, Any]], base_ns: int) -> Iterator[dict[str, Any]]:
    """Return events with a duration, without those whose end the profiler did not see."""
    for event in events:
        if (
            event.get("ph") == "X"
            and event.get("cat") != "Trace"
            and event.get("args", {}).get("finished", True) is not False
        ):
            start_ns = base_ns + round(event["ts"] * 1e3)
            yield {
                "name": str(event["name"]),
                "cat": str(event.get("cat", "")),
                "tid": event["tid"],
                "args": event.get("args", {}),
                "start_ns": start_ns,
                "end_ns": start_ns + max(0, round(event.get("dur", 0) * 1e3)),
            }


def is_collective(event: dict[str, Any]) -> bool:
    return str(event["name"]).lower().startswith(_COLLECTIVES)


def _collective_bytes(event: dict[str, Any]) -> int:
    """Return the size of the tensors of a collective, where the profiler recorded their shapes."""
    shapes, kinds = event["args"].get("Input Dims", []), event["args"].get("Input type", [])
    return sum(
        math.prod(shape) * _BYTES.get(kind, 0)
        for shape, kind in zip(shapes, kinds, strict=False)
        if all(isinstance(size, int) for size in shape) and shape
    )
