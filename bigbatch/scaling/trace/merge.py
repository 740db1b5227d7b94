"""Everything that was recorded as one Chrome trace, for Perfetto or chrome://tracing.

Ranks of one engine share one clock (see the package's docstring): zero is the moment at which the first of them began
its first traced step. Engines ran one after the other; each one's own zero is laid on the trace's zero, so that their
steps can be compared, and `otherData` has the true moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bigbatch.artifacts import atomic
from bigbatch.scaling.trace import profiler
from bigbatch.scaling.trace.profiler import Profile
from bigbatch.scaling.trace.timeline import Timeline

MOST_PLAIN_EVENTS = 20_000  # about 4 MB; more than that is packed
_NOISE = ("Ev Idx", "External id", "Record function id", "Concrete Inputs", "Input Strides")
_MARKS = "marks"
_CYCLES, _NEGOTIATION, _COMMUNICATION, _FIRST_TENSOR = 1, 2, 3, 10


@dataclass(frozen=True)
class Recorded:
    """What was recorded of one engine."""

    engine: str
    profiles: Sequence[Profile]
    timeline: Timeline | None = None

    @cached_property
    def zero_ns(self) -> int:
        return min(profile.spans(profiler.STEP)[0].start_ns for profile in self.profiles)

    @cached_property
    def end_ns(self) -> int:
        return max(profile.spans(profiler.STEP)[-1].end_ns for profile in self.profiles)


def merged(recordings: Sequence[Recorded]) -> dict[str, Any]:
    """The trace: names first, then events by time."""
    names: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    process = 0
    for recorded in recordings:
        for profile in recorded.profiles:
            process += 1
            threads = _threads(profile)
            names += _named(process, f"{recorded.engine} rank {profile.rank}", threads.values())
            events += _of_rank(profile, process, {thread: number for thread, (number, _) in threads.items()}, recorded)
        if recorded.timeline is not None:
            process += 1
            timeline = recorded.timeline.between(recorded.zero_ns, recorded.end_ns)
            rows = _rows(timeline)
            names += _named(process, f"{recorded.engine} timeline of rank 0", rows.values())
            events += _of_timeline(timeline, process, {name: number for name, (number, _) in rows.items()}, recorded)
    events.sort(key=lambda event: (event["ts"], -event.get("dur", 0.0)))  # what is around comes before what is within
    return {
        "displayTimeUnit": "ms",
        "otherData": {f"{one.engine} began, ns since 1970": str(one.zero_ns) for one in recordings},
        "traceEvents": [*names, *events],
    }


def write(recordings: Sequence[Recorded], folder: Path) -> Path:
    """trace.json, or trace.json.gz where there is much."""
    trace = merged(recordings)
    text = json.dumps(trace, separators=(",", ":"))
    if len(trace["traceEvents"]) <= MOST_PLAIN_EVENTS:
        return atomic.write_text(folder / "trace.json", text)
    import gzip

    path = folder / "trace.json.gz"
    with atomic.replace_file(path) as temporary:
        temporary.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path


def _threads(profile: Profile) -> dict[int | str, tuple[int, str]]:
    """A number and a name for each thread: the one that steps, those that send, the others. First comes one for our
    own marks, which would cut through the profiler's events: a gradient is handed over before its operator ends.
    """
    computing = profile.spans(profiler.STEP)[0].thread
    sending = sorted({event["tid"] for event in profile.events if profiler.is_message(event)} - {computing}, key=str)
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


def _of_rank(
    profile: Profile, process: int, threads: dict[int | str, int], recorded: Recorded
) -> Iterator[dict[str, Any]]:
    for event in profile.events:
        if recorded.zero_ns <= event["start_ns"] <= recorded.end_ns:
            thread = threads[_MARKS if event["name"].startswith(profiler.MARK) else event["tid"]]
            yield _event(event["name"], event["start_ns"], event["end_ns"], process, thread, recorded) | {
                "cat": event["cat"],
                "args": {name: value for name, value in event["args"].items() if name not in _NOISE},
            }


def _rows(timeline: Timeline) -> dict[str, tuple[int, str]]:
    found = {
        "cycles": (_CYCLES, "Horovod cycles"),
        "negotiation": (_NEGOTIATION, "Horovod negotiation"),
        "communication": (_COMMUNICATION, "Horovod communication"),
    }
    tensors = dict.fromkeys(one.tensor for one in timeline.activities)
    return found | {
        f"tensor {tensor}": (_FIRST_TENSOR + index, f"tensor {tensor}") for index, tensor in enumerate(tensors)
    }


def _of_timeline(
    timeline: Timeline, process: int, rows: dict[str, int], recorded: Recorded
) -> Iterator[dict[str, Any]]:
    """Each tensor on a row of its own; above them the cycles, when anything was negotiated, and the buffers."""
    for moment_ns in timeline.cycles_ns:
        ts = (moment_ns - recorded.zero_ns) / 1e3
        yield {"ph": "i", "s": "t", "name": "cycle", "ts": ts, "pid": process, "tid": rows["cycles"]}
    for start_ns, end_ns in timeline.negotiating():
        yield _event("negotiation", start_ns, end_ns, process, rows["negotiation"], recorded)
    for buffer in timeline.buffers():
        name = f"{len(buffer.tensors)} tensors, {buffer.bytes} bytes"
        yield _event(name, buffer.start_ns, buffer.end_ns, process, rows["communication"], recorded) | {
            "args": {"tensors": list(buffer.tensors), "bytes": buffer.bytes}
        }
    for one in timeline.activities:
        yield _event(one.name, one.start_ns, one.end_ns, process, rows[f"tensor {one.tensor}"], recorded) | {
            "args": {"bytes": one.bytes} if one.bytes else {}
        }


def _event(name: str, start_ns: int, end_ns: int, process: int, thread: int, recorded: Recorded) -> dict[str, Any]:
    ts, dur = (start_ns - recorded.zero_ns) / 1e3, (end_ns - start_ns) / 1e3
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": process, "tid": thread}


def _named(process: int, name: str, threads: Any) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}
    for number, thread in threads:
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": number, "args": {"name": thread}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": number, "args": {"sort_index": number}}
