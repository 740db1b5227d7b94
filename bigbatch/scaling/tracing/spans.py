"""What the torch profiler of each rank and Horovod's timeline of rank 0 recorded: spans on one clock.

A moment is an integer of nanoseconds since 1970. The profiler's file has a base in such nanoseconds, to which its
microseconds are added. Horovod's timeline counts microseconds from its start, and one of its lines says when that was,
in microseconds since 1970. Ranks of one machine read the same clock.

A tensor is a "process" of Horovod's file. Within it a negotiation (NEGOTIATE_ALLREDUCE) is followed by an operation
(ALLREDUCE) that holds activities (MEMCPY_IN_FUSION_BUFFER, GLOO_ALLREDUCE, MEMCPY_OUT_FUSION_BUFFER). The end of an
operation carries the tensor's shape and type. Tensors that were fused into one buffer begin and end their activities
together. (horovod/common/timeline.cc, ops/gloo_operations.cc; version 0.28.)
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from bigbatch.errors import Problem
from bigbatch.scaling.phases import Bar, StepPhases, covered_time, merge_intervals

_COLLECTIVES = ("gloo:", "nccl:", "nccldevkernel", "ncclkernel")  # torch's collectives, and NCCL's kernels
_DROPPED_ARGUMENTS = ("Ev Idx", "External id", "Record function id", "Concrete Inputs", "Input Strides")
_HOROVOD_CATEGORIES = {
    "negotiation": re.compile(r"NEGOTIATE_\w+"),
    "copy": re.compile(r"MEMCPY_(IN|OUT)_FUSION_BUFFER"),
    "communication": re.compile(r"(GLOO|NCCL|MPI)_\w+"),
}
_TORCH_BYTES = {
    "double": 8, "float": 4, "c10::half": 2, "c10::bfloat16": 2, "long int": 8, "int": 4, "unsigned char": 1,
}  # fmt: skip
_HOROVOD_BYTES = {"float64": 8, "float32": 4, "float16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1}


class Span(NamedTuple):
    """An activity. `track` is its thread, or its tensor in Horovod's timeline.

    The `category` of an activity in Horovod's timeline is negotiation, copy, communication, or operation for one that
    holds others; its bytes are known for operations only.
    """

    name: str
    start_ns: int
    end_ns: int
    track: int | str = 0
    bytes: int = 0
    category: str = ""
    args: Mapping[str, Any] = {}

    @property
    def duration_us(self) -> float:
        return (self.end_ns - self.start_ns) / 1e3

    @property
    def is_collective(self) -> bool:
        return self.name.lower().startswith(_COLLECTIVES)


@dataclass(frozen=True)
class ProfilerTrace:
    """One rank: the steps that it recorded, and the profiler's spans in order of time, on any thread."""

    rank: int
    steps: Sequence[StepPhases]
    spans: Sequence[Span]
    computing_thread: int | str = 0

    def collectives(self) -> list[Span]:
        return [span for span in self.spans if span.is_collective]


@dataclass(frozen=True)
class HorovodTimeline:
    activities: Sequence[Span]  # in order of time
    cycles_ns: Sequence[int]  # when Horovod's thread woke up

    def between(self, start_ns: int, end_ns: int) -> HorovodTimeline:
        """Return the activities and cycles that began within."""
        return HorovodTimeline(
            [one for one in self.activities if start_ns <= one.start_ns < end_ns],
            [moment for moment in self.cycles_ns if start_ns <= moment < end_ns],
        )

    def buffers(self) -> list[Span]:
        """Group operations that were sent together: at the same time, as Horovod sends one buffer after the other."""
        groups: list[dict[int | str, Span]] = []  # by tensor
        for one in self.activities:
            if one.category != "communication":
                continue
            if groups and one.start_ns < min(other.end_ns for other in groups[-1].values()):
                groups[-1][one.track] = one
            else:
                groups.append({one.track: one})
        return [self._fuse(group) for group in groups]

    def _fuse(self, group: Mapping[int | str, Span]) -> Span:
        whole = [
            one
            for one in self.activities
            if one.category == "operation"
            and one.track in group
            and one.start_ns <= group[one.track].start_ns
            and one.end_ns >= group[one.track].end_ns
        ]
        spans, size = [*whole, *group.values()], sum(one.bytes for one in whole)
        start_ns, end_ns = min(one.start_ns for one in spans), max(one.end_ns for one in spans)
        args = {"tensors": list(group), "bytes": size}
        return Span(f"{len(group)} tensors", start_ns, end_ns, "communication", size, "communication", args)

    def negotiations(self) -> list[tuple[int, int]]:
        """Return the intervals in which at least one tensor was being negotiated."""
        return merge_intervals((one.start_ns, one.end_ns) for one in self.activities if one.category == "negotiation")


@dataclass(frozen=True)
class EngineRecording:
    """The profiler's traces of all ranks of one engine, and Horovod's timeline."""

    engine: str
    profiles: Sequence[ProfilerTrace]
    timeline: HorovodTimeline | None = None

    @cached_property
    def start_ns(self) -> int:
        """When the first rank began its first traced step."""
        return min(profile.steps[0].started_ns for profile in self.profiles)

    @cached_property
    def end_ns(self) -> int:
        return max(profile.steps[-1].end_ns for profile in self.profiles)


def with_communication(
    step: StepPhases, collectives: Sequence[Span], negotiations: Sequence[tuple[int, int]] | None = None
) -> StepPhases:
    """Return a step with its communication as a profiler or Horovod's timeline recorded it."""

    def to_us(moment_ns: int) -> float:
        return (moment_ns - step.started_ns) / 1e3

    lanes = list(dict.fromkeys(one.track for one in collectives))  # one for each thread
    messages = [
        Bar("communication", one.name, to_us(one.start_ns), to_us(one.end_ns), one.bytes, lanes.index(one.track))
        for one in collectives
    ]
    agreed = [Bar("negotiation", "negotiate", to_us(start), to_us(end)) for start, end in negotiations or ()]
    sent = [(bar.start_us, bar.end_us) for bar in messages]
    return replace(
        step,
        overlapped_us=None if step.exposed_us is None else covered_time(sent, step.forward_us + step.backward_us),
        negotiation_us=None if negotiations is None else sum(bar.end_us - bar.start_us for bar in agreed),
        bars=(*(bar for bar in step.bars if bar.stream == "compute"), *agreed, *messages),
    )


def add_timeline(step: StepPhases, timeline: HorovodTimeline) -> StepPhases:
    """Return a step with the buffers that Horovod sent in it, and the time of negotiating them."""
    within = timeline.between(step.started_ns, step.end_ns)
    return with_communication(step, within.buffers(), within.negotiations())


def parse_profiler_trace(
    text: str, rank: int, steps: Sequence[StepPhases] = (), computing_thread: int | str = 0
) -> ProfilerTrace:
    """Read events with a duration, without those whose end the profiler did not see."""
    spans = []
    try:
        trace = json.loads(text)
        base_ns = int(trace["baseTimeNanoseconds"])
        for event in trace["traceEvents"]:
            args = event.get("args", {})
            if event.get("ph") != "X" or event.get("cat") == "Trace" or args.get("finished", True) is False:
                continue
            start_ns = base_ns + round(event["ts"] * 1e3)
            span = Span(
                name=str(event["name"]),
                start_ns=start_ns,
                end_ns=start_ns + max(0, round(event.get("dur", 0) * 1e3)),
                track=event["tid"],
                category=str(event.get("cat", "")),
                args={name: value for name, value in args.items() if name not in _DROPPED_ARGUMENTS},
            )
            spans.append(span._replace(bytes=_input_bytes(args)) if span.is_collective else span)
    except (ValueError, KeyError, TypeError) as error:
        raise Problem(f"rank {rank} returned no trace of the torch profiler ({error!r}): rerun the trace") from error
    return ProfilerTrace(rank, steps, sorted(spans, key=lambda span: span.start_ns), computing_thread)


def _input_bytes(args: Mapping[str, Any]) -> int:
    """Return the size of the tensors of a collective, where the profiler recorded their shapes."""
    return sum(
        math.prod(shape) * _TORCH_BYTES.get(kind, 0)
        for shape, kind in zip(args.get("Input Dims", []), args.get("Input type", []), strict=False)
        if all(isinstance(size, int) for size in shape) and shape
    )


def read_timeline(path: Path) -> HorovodTimeline:
    try:
        events = json.loads(path.read_text(encoding="utf-8"))
        start_ns = next(
            1000 * int(event["args"]["start_time_since_epoch_in_micros"])
            for event in events
            if "start_time_since_epoch_in_micros" in event.get("args", {})
        )
        return _parse_timeline(events, start_ns)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, StopIteration) as error:
        raise Problem(f"{path} is not a timeline of Horovod ({error!r}): rerun the trace") from error


def _parse_timeline(events: Iterable[Mapping[str, Any]], timeline_start_ns: int) -> HorovodTimeline:
    tensors: dict[int, str] = {}
    unfinished: dict[int, list[tuple[str, int]]] = defaultdict(list)
    activities, cycles_ns = [], []
    for event in events:
        moment_ns = timeline_start_ns + 1000 * int(event.get("ts", 0))
        if event.get("name") == "process_name" and "name" in event["args"]:
            tensors[event["pid"]] = str(event["args"]["name"]).removeprefix("allreduce.")  # Horovod's prefix
        elif event["ph"] == "B":
            unfinished[event["pid"]].append((str(event["name"]), moment_ns))
        elif event["ph"] == "E":
            name, start_ns = unfinished[event["pid"]].pop()
            categories = (one for one, pattern in _HOROVOD_CATEGORIES.items() if pattern.fullmatch(name))
            category, size = next(categories, "operation"), _tensor_bytes(event.get("args", {}))
            end_ns = max(start_ns, moment_ns)
            args = {"bytes": size} if size else {}
            activities.append(Span(name, start_ns, end_ns, tensors[event["pid"]], size, category, args))
        elif event["ph"] == "i" and event["name"] == "CYCLE_START":
            cycles_ns.append(moment_ns)
    return HorovodTimeline(sorted(activities, key=lambda one: one.start_ns), sorted(cycles_ns))


def _tensor_bytes(args: Mapping[str, str]) -> int:
    """Return the size of a tensor described by `{"dtype": "float32", "shape": "[512, 10]"}`."""
    if "shape" not in args:
        return 0
    elements = math.prod(int(size) for size in re.findall(r"\d+", args["shape"]))
    return elements * _HOROVOD_BYTES.get(args.get("dtype", ""), 0)
