"""What the torch profiler of one rank wrote: a Chrome trace, its moments turned into nanoseconds since 1970."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bigbatch.errors import Problem

MARK = "bigbatch "  # what our own marks begin with
STEP, FORWARD, BACKWARD, UPDATE, GRADIENT = (
    f"{MARK}{what}" for what in ("step", "forward", "backward", "update", "gradient")
)
_SENDERS = ("gloo:", "nccl:", "nccldevkernel", "ncclkernel")  # torch's names of collectives, and NCCL's of its kernels
_BYTES = {"double": 8, "float": 4, "c10::half": 2, "c10::bfloat16": 2, "long int": 8, "int": 4, "unsigned char": 1}


class Span(NamedTuple):
    """Something that lasted, on one thread."""

    name: str
    start_ns: int
    end_ns: int
    thread: int | str = 0
    bytes: int = 0


@dataclass(frozen=True)
class Profile:
    """One rank's events, each with its own `start_ns` and `end_ns`."""

    rank: int
    events: tuple[dict[str, Any], ...]

    def spans(self, name: str) -> list[Span]:
        """Our own marks of this name, or of names that go on after it, in order of time."""
        return sorted(
            (
                Span(event["name"], event["start_ns"], event["end_ns"], event["tid"])
                for event in self.events
                if event["name"] == name or event["name"].startswith(f"{name} ")
            ),
            key=lambda span: span.start_ns,
        )

    def messages(self) -> list[Span]:
        """What was sent, in order of time."""
        return sorted(
            (
                Span(event["name"], event["start_ns"], event["end_ns"], event["tid"], _bytes_of(event))
                for event in self.events
                if is_message(event)
            ),
            key=lambda span: span.start_ns,
        )


def read(path: Path, rank: int) -> Profile:
    try:
        trace = json.loads(path.read_text(encoding="utf-8"))
        base_ns = int(trace["baseTimeNanoseconds"])
        return Profile(rank, tuple(_events(trace["traceEvents"], base_ns)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Problem(f"{path} is no trace of the torch profiler ({error!r}): trace again") from error


def _events(events: list[dict[str, Any]], base_ns: int) -> Iterator[dict[str, Any]]:
    """What lasted; not what the profiler did not see the end of, whose length it makes up."""
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


def is_message(event: dict[str, Any]) -> bool:
    return event["name"].lower().startswith(_SENDERS)


def _bytes_of(event: dict[str, Any]) -> int:
    """Of the tensors that a collective was given, where the profiler noted their shapes."""
    shapes, kinds = event["args"].get("Input Dims", []), event["args"].get("Input type", [])
    return sum(
        math.prod(shape) * _BYTES.get(kind, 0)
        for shape, kind in zip(shapes, kinds, strict=False)
        if all(isinstance(size, int) for size in shape) and shape
    )
