"""All recordings merged into one Chrome trace, for Perfetto or chrome://tracing.

Ranks of one engine share one clock (see the package's docstring): zero is the moment at which the first of them began
its first traced step. Engines ran one after the other; all begin at zero in the trace, so that their steps can be
compared, and `otherData` has the true moments.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bigbatch.artifacts import atomic
from bigbatch.scaling.tracing import profiler_trace
from bigbatch.scaling.tracing.horovod_timeline import HorovodTimeline
from bigbatch.scaling.tracing.profiler_trace import ProfilerTrace

MOST_PLAIN_EVENTS = 20_000  # about 4 MB; more than that is compressed
_DROPPED_ARGUMENTS = ("Ev Idx", "External id", "Record function id", "Concrete Inputs", "Input Strides")
_MARKS = "marks"
_CYCLES, _NEGOTIATION, _COMMUNICATION, _FIRST_TENSOR = 1, 2, 3, 10


@dataclass(frozen=True)
class EngineRecording:
    """The profiler's traces of all ranks of one engine, and Horovod's timeline."""

    engine: str
    profiles: Sequence[ProfilerTrace]
    timeline: HorovodTimeline | None = None

    @cached_property
    def zero_ns(self) -> int:
        return min(profile.marks(profiler_trace.STEP)[0].start_ns for profile in self.profiles)

    @cached_property
    def end_ns(self) -> int:
        return max(profile.marks(profiler_trace.STEP)[-1].end_ns for profile in self.profiles)


def merge_recordings(recordings: Sequence[EngineRecording]) -> dict[str, Any]:
    """Return the Chrome trace: names first, then events by time."""
    names: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    process = 0
    for recording in recordings:
        for profile in recording.profiles:
            process += 1
            threads = _number_threads(profile)
            names += _name_events(process, f"{recording.engine} rank {profile.rank}", threads.values())
            events += _rank_events(
                profile, process, {thread: number for thread, (number, _) in threads.items()}, recording
            )
        if recording.timeline is not None:
            process += 1
            timeline = recording.timeline.between(recording.zero_ns, recording.end_ns)
            rows = _timeline_rows(timeline)
            names += _name_events(process, f"{recording.engine} timeline of rank 0", rows.values())
            events += _timeline_events(
                timeline, process, {name: number for name, (number, _) in rows.items()}, recording
            )
    events.sort(key=lambda event: (event["ts"], -event.get("dur", 0.0)))  # what is around comes before what is within
    return {
        "displayTimeUnit": "ms",
        "otherData": {f"{one.engine} began, ns since 1970": str(one.zero_ns) for one in recordings},
        "traceEvents": [*names, *events],
    }


def write_chrome_trace(recordings: Sequence[EngineRecording], folder: Path) -> Path:
    """Write trace.json, or trace.json.gz where there are many events."""
    trace = merge_recordings(recordings)
    text = json.dumps(trace, separators=(",", ":"))
    if len(trace["traceEvents"]) <= MOST_PLAIN_EVENTS:
        return atomic.write_text(folder / "trace.json", text)
    import gzip

    path = folder / "trace.json.gz"
    with atomic.replace_file(path) as temporary:
        temporary.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path


def _number_threads(profile: ProfilerTrace) -> dict[int | str, tuple[int, str]]:
    """Return a number and a name for each thread: the computing one, the communicating ones, the others.

    Before them comes a row for our own marks, which would overlap with events: an engine has a gradient before its
    operator ends.
    """
    computing = profile.marks(profiler_trace.STEP)[0].thread
    sending = sorted(
        {event["tid"] for event in profile.events if profiler_trace.is_collective(event)} - {computing}, key=str
    )
    others = sorted({event["tid"] for event in profile.events} - {computing, *sending}, key=str)
    found: dict[int | str, tuple[int, str]] = {
        _MARKS: (1, f"rank {profile.rank} phases"),
        computing: (2, f"rank {profile.rank} compute"),
    }
    for index, thread in enumerate(sending):
        found[thread] = (3 + index, f"rank {profile.rank} communication" + (f" {index + 1}" if index else ""))
    for index, thread in enumerate(others):
        found[thread] = (3 + len(sending) + index, f"rank {profile.rank} thread {thread}")
    return found


def _rank_events(
    profile: ProfilerTrace, process: int, threads: dict[int | str, int], recording: EngineRecording
) -> Iterator[dict[str, Any]]:
    for event in profile.events:
        if recording.zero_ns <= event["start_ns"] <= recording.end_ns:
            thread = threads[_MARKS if event["name"].startswith(profiler_trace.MARK) else event["tid"]]
            yield _duration_event(event["name"], event["start_ns"], event["end_ns"], process, thread, recording) | {
                "cat": event["cat"],
                "args": {name: value for name, value in event["args"].items() if name not in _DROPPED_ARGUMENTS},
            }


def _timeline_rows(timeline: HorovodTimeline) -> dict[str, tuple[int, str]]:
    found = {
        "cycles": (_CYCLES, "Horovod cycles"),
        "negotiation": (_NEGOTIATION, "Horovod negotiation"),
        "communication": (_COMMUNICATION, "Horovod communication"),
    }
    tensors = dict.fromkeys(one.tensor for one in timeline.activities)
    return found | {
        f"tensor {tensor}": (_FIRST_TENSOR + index, f"tensor {tensor}") for index, tensor in enumerate(tensors)
    }


def _timeline_events(
    timeline: HorovodTimeline, process: int, rows: dict[str, int], recording: EngineRecording
) -> Iterator[dict[str, Any]]:
    """Each tensor has a row of its own; above them are cycles, negotiations and all-reduces."""
    for moment_ns in timeline.cycles_ns:
        ts = (moment_ns - recording.zero_ns) / 1e3
        yield {"ph": "i", "s": "t", "name": "cycle", "ts": ts, "pid": process, "tid": rows["cycles"]}
    for start_ns, end_ns in timeline.negotiations():
        yield _duration_event("negotiation", start_ns, end_ns, process, rows["negotiation"], recording)
    for buffer in timeline.buffers():
        name = f"{len(buffer.tensors)} tensors, {buffer.bytes} bytes"
        yield _duration_event(name, buffer.start_ns, buffer.end_ns, process, rows["communication"], recording) | {
            "args": {"tensors": list(buffer.tensors), "bytes": buffer.bytes}
        }
    for one in timeline.activities:
        yield _duration_event(one.name, one.start_ns, one.end_ns, process, rows[f"tensor {one.tensor}"], recording) | {
            "args": {"bytes": one.bytes} if one.bytes else {}
        }


def _duration_event(
    name: str, start_ns: int, end_ns: int, process: int, thread: int, recording: EngineRecording
) -> dict[str, Any]:
    ts, dur = (start_ns - recording.zero_ns) / 1e3, (end_ns - start_ns) / 1e3
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": process, "tid": thread}


def _name_events(process: int, name: str, threads: Iterable[tuple[int, str]]) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}
    for number, thread in threads:
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": number, "args": {"name": thread}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": number, "args": {"sort_index": number}}
