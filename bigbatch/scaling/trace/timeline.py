"""Horovod's timeline of rank 0: what happened to each tensor, in nanoseconds since 1970.

A tensor is a "process" of that file. Within it a negotiation (NEGOTIATE_ALLREDUCE) is followed by an operation
(ALLREDUCE) that holds activities (MEMCPY_IN_FUSION_BUFFER, GLOO_ALLREDUCE, MEMCPY_OUT_FUSION_BUFFER). The end of an
operation carries the tensor's shape and type. Tensors that were fused into one buffer begin and end their activities
together. (horovod/common/timeline.cc, ops/gloo_operations.cc; version 0.28.)
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bigbatch.errors import Problem
from bigbatch.scaling.phases import merge_intervals

NEGOTIATION = "NEGOTIATE_"
COPIES = ("MEMCPY_IN_FUSION_BUFFER", "MEMCPY_OUT_FUSION_BUFFER")
_PREFIX = "allreduce."  # what Horovod puts before the name that it was given
_SENDING = re.compile(r"(GLOO|NCCL|MPI)_\w+")
_BYTES = {"float64": 8, "float32": 4, "float16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1}


class Activity(NamedTuple):
    """What was done with one tensor; `bytes` are known for whole operations only."""

    tensor: str
    name: str
    start_ns: int
    end_ns: int
    bytes: int = 0

    @property
    def negotiates(self) -> bool:
        return self.name.startswith(NEGOTIATION)

    @property
    def sends(self) -> bool:
        return _SENDING.fullmatch(self.name) is not None

    @property
    def copies(self) -> bool:
        return self.name in COPIES


class Buffer(NamedTuple):
    """One all-reduce: of one tensor, or of several in a fusion buffer."""

    tensors: tuple[str, ...]
    start_ns: int
    end_ns: int
    bytes: int


@dataclass(frozen=True)
class Timeline:
    activities: tuple[Activity, ...]
    cycles_ns: tuple[int, ...]  # when Horovod's thread woke up

    def between(self, start_ns: int, end_ns: int) -> Timeline:
        """What began within."""
        return Timeline(
            tuple(one for one in self.activities if start_ns <= one.start_ns < end_ns),
            tuple(moment for moment in self.cycles_ns if start_ns <= moment < end_ns),
        )

    def buffers(self) -> list[Buffer]:
        """Operations that went together: they send at the same time, as Horovod sends one buffer after the other."""
        sending = sorted((one for one in self.activities if one.sends), key=lambda one: one.start_ns)
        groups: list[list[Activity]] = []
        for one in sending:
            if groups and one.start_ns < min(other.end_ns for other in groups[-1]):
                groups[-1].append(one)
            else:
                groups.append([one])
        return [self._buffer(group) for group in groups]

    def negotiating(self) -> list[tuple[int, int]]:
        """When at least one tensor was being negotiated."""
        return merge_intervals((one.start_ns, one.end_ns) for one in self.activities if one.negotiates)

    def _buffer(self, group: list[Activity]) -> Buffer:
        tensors = {one.tensor: one for one in group}
        whole = [
            one
            for one in self.activities
            if one.tensor in tensors
            and not (one.negotiates or one.sends or one.copies)
            and one.start_ns <= tensors[one.tensor].start_ns
            and one.end_ns >= tensors[one.tensor].end_ns
        ]
        return Buffer(
            tuple(tensors),
            min(one.start_ns for one in [*whole, *group]),
            max(one.end_ns for one in [*whole, *group]),
            sum(one.bytes for one in whole),
        )


def read(path: Path) -> Timeline:
    try:
        events = json.loads(path.read_text(encoding="utf-8"))
        start_ns = next(
            1000 * int(event["args"]["start_time_since_epoch_in_micros"])
            for event in events
            if "start_time_since_epoch_in_micros" in event.get("args", {})
        )
        return _timeline(events, start_ns)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, StopIteration) as error:
        raise Problem(f"{path} is no timeline of Horovod ({error!r}): trace again") from error


def _timeline(events: list[dict[str, Any]], start_ns: int) -> Timeline:
    names = {
        event["pid"]: str(event["args"]["name"]).removeprefix(_PREFIX)
        for event in events
        if event.get("name") == "process_name" and "name" in event["args"]
    }
    open_ones: dict[int, list[tuple[str, int]]] = defaultdict(list)
    activities, cycles_ns = [], []
    for event in events:
        if event["ph"] == "B":
            open_ones[event["pid"]].append((str(event["name"]), start_ns + 1000 * int(event["ts"])))
        elif event["ph"] == "E":
            name, began_ns = open_ones[event["pid"]].pop()
            ended_ns = max(began_ns, start_ns + 1000 * int(event["ts"]))
            activities.append(Activity(names[event["pid"]], name, began_ns, ended_ns, _bytes_of(event.get("args", {}))))
        elif event["ph"] == "i" and event["name"] == "CYCLE_START":
            cycles_ns.append(start_ns + 1000 * int(event["ts"]))
    return Timeline(tuple(sorted(activities, key=lambda one: one.start_ns)), tuple(sorted(cycles_ns)))


def _bytes_of(args: dict[str, Any]) -> int:
    """`{"dtype": "float32", "shape": "[512, 10]"}`."""
    if "shape" not in args:
        return 0
    return math.prod(int(size) for size in re.findall(r"\d+", args["shape"])) * _BYTES.get(args.get("dtype", ""), 0)
