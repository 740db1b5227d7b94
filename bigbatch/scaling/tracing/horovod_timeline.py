"""Horovod's timeline of rank 0: the activities of each tensor, in nanoseconds since 1970.

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
_ALL_REDUCE = re.compile(r"(GLOO|NCCL|MPI)_\w+")
_BYTES = {"float64": 8, "float32": 4, "float16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1}


class TensorActivity(NamedTuple):
    """An activity with one tensor; `bytes` are known for whole operations only."""

    tensor: str
    name: str
    start_ns: int
    end_ns: int
    bytes: int = 0

    @property
    def is_negotiation(self) -> bool:
        return self.name.startswith(NEGOTIATION)

    @property
    def is_all_reduce(self) -> bool:
        return _ALL_REDUCE.fullmatch(self.name) is not None

    @property
    def is_copy(self) -> bool:
        return self.name in COPIES


class FusedAllReduce(NamedTuple):
    """One all-reduce: of one tensor, or of several in a fusion buffer."""

    tensors: tuple[str, ...]
    start_ns: int
    end_ns: int
    bytes: int


@dataclass(frozen=True)
class HorovodTimeline:
    activities: tuple[TensorActivity, ...]
    cycles_ns: tuple[int, ...]  # when Horovod's thread woke up

    def between(self, start_ns: int, end_ns: int) -> HorovodTimeline:
        """Return the activities and cycles that began within."""
        return HorovodTimeline(
            tuple(one for one in self.activities if start_ns <= one.start_ns < end_ns),
            tuple(moment for moment in self.cycles_ns if start_ns <= moment < end_ns),
        )

    def buffers(self) -> list[FusedAllReduce]:
        """Group operations that were sent together: at the same time, as Horovod sends one buffer after the other."""
        sending = sorted((one for one in self.activities if one.is_all_reduce), key=lambda one: one.start_ns)
        groups: list[list[TensorActivity]] = []
        for one in sending:
            if groups and one.start_ns < min(other.end_ns for other in groups[-1]):
                groups[-1].append(one)
            else:
                groups.append([one])
        return [self._fuse(group) for group in groups]

    def negotiations(self) -> list[tuple[int, int]]:
        """Return the intervals in which at least one tensor was being negotiated."""
        return merge_intervals((one.start_ns, one.end_ns) for one in self.activities if one.is_negotiation)

    def _fuse(self, group: list[TensorActivity]) -> FusedAllReduce:
        tensors = {one.tensor: one for one in group}
        whole = [
            one
            for one in self.activities
            if one.tensor in tensors
            and not (one.is_negotiation or one.is_all_reduce or one.is_copy)
            and one.start_ns <= tensors[one.tensor].start_ns
            and one.end_ns >= tensors[one.tensor].end_ns
        ]
        return FusedAllReduce(
            tuple(tensors),
            min(one.start_ns for one in [*whole, *group]),
            max(one.end_ns for one in [*whole, *group]),
            sum(one.bytes for one in whole),
        )


def read_timeline(path: Path) -> HorovodTimeline:
    try:
        events = json.loads(path.read_text(encoding="utf-8"))
        start_ns = next(
            1000 * int(event["args"]["start_time_since_epoch_in_micros"])
            for event in events
            if "start_time_since_epoch_in_micros" in event.get("args", {})
        )
        return _parse_events(events, start_ns)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, StopIteration) as error:
        raise Problem(f"{path} is not a timeline of Horovod ({error!r}): rerun the trace") from error


def _parse_events(events: list[dict[str, Any]], start_ns: int) -> HorovodTimeline:
    names = {
        event["pid"]: str(event["args"]["name"]).removeprefix(_PREFIX)
        for event in events
        if event.get("name") == "process_name" and "name" in event["args"]
    }
    unfinished: dict[int, list[tuple[str, int]]] = defaultdict(list)
    activities, cycles_ns = [], []
    for event in events:
        if event["ph"] == "B":
            unfinished[event["pid"]].append((str(event["name"]), start_ns + 1000 * int(event["ts"])))
        elif event["ph"] == "E":
            name, began_ns = unfinished[event["pid"]].pop()
            ended_ns = max(began_ns, start_ns + 1000 * int(event["ts"]))
            size = _tensor_bytes(event.get("args", {}))
            activities.append(TensorActivity(names[event["pid"]], name, began_ns, ended_ns, size))
        elif event["ph"] == "i" and event["name"] == "CYCLE_START":
            cycles_ns.append(start_ns + 1000 * int(event["ts"]))
    return HorovodTimeline(tuple(sorted(activities, key=lambda one: one.start_ns)), tuple(sorted(cycles_ns)))


def _tensor_bytes(args: dict[str, Any]) -> int:
    """Return the size of a tensor described by `{"dtype": "float32", "shape": "[512, 10]"}`."""
    if "shape" not in args:
        return 0
    return math.prod(int(size) for size in re.findall(r"\d+", args["shape"])) * _BYTES.get(args.get("dtype", ""), 0)
