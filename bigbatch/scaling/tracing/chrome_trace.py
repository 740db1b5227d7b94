"""All recordings merged into one Chrome trace, for Perfetto or chrome://tracing.

Ranks of one engine share one clock: zero is the moment at which the first of them began its first traced step. Engines
ran one after the other; all begin at zero in the trace, so that their steps can be compared, and `otherData` has the
true moments.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bigbatch.artifacts import atomic
from bigbatch.scaling.tracing.spans import EngineRecording, HorovodTimeline, ProfilerTrace, Span

MOST_PLAIN_EVENTS = 20_000  # about 4 MB; more than that is compressed
_CYCLE = "cycle"
Tracks = Mapping[str, Sequence[Span]]  # spans by the name of their row in the viewer


def write_chrome_trace(recordings: Sequence[EngineRecording], folder: Path) -> Path:
    """Write trace.json, or trace.json.gz where there are many events."""
    trace = merge_recordings(recordings)
    text = json.dumps(trace, separators=(",", ":"))
    if len(trace["traceEvents"]) <= MOST_PLAIN_EVENTS:
        return atomic.write_text(folder / "trace.json", text)
    path = folder / "trace.json.gz"
    with atomic.replace_file(path) as temporary:
        temporary.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path


def merge_recordings(recordings: Sequence[EngineRecording]) -> dict[str, Any]:
    """Return the Chrome trace: names first, then events by time."""
    names: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    processes = [(one, *process) for one in recordings for process in _processes(one)]
    for process, (recording, process_name, tracks) in enumerate(processes, start=1):
        names += _name_events("process", process, 0, process_name, process)
        for track, (track_name, spans) in enumerate(tracks.items(), start=1):
            names += _name_events("thread", process, track, track_name, track)
            events += [_event(span, process, track, recording.start_ns) for span in spans]
    events.sort(key=lambda event: (event["ts"], -event.get("dur", 0.0)))  # what is around comes before what is within
    return {
        "displayTimeUnit": "ms",
        "otherData": {f"{one.engine} began, ns since 1970": str(one.start_ns) for one in recordings},
        "traceEvents": [*names, *events],
    }


def _processes(recording: EngineRecording) -> Iterator[tuple[str, Tracks]]:
    start_ns, end_ns = recording.start_ns, recording.end_ns
    for profile in recording.profiles:
        spans = [span for span in profile.spans if start_ns <= span.start_ns <= end_ns]
        yield f"{recording.engine} rank {profile.rank}", _rank_tracks(profile, spans)
    if recording.timeline is not None:
        yield (
            f"{recording.engine} timeline of rank 0",
            _timeline_tracks(recording.timeline.between(start_ns, end_ns)),
        )


def _rank_tracks(profile: ProfilerTrace, spans: Sequence[Span]) -> Tracks:
    """Return the recorded steps, then the threads: the computing one, the communicating ones, the others."""
    sending = sorted({span.track for span in profile.collectives()} - {profile.computing_thread}, key=str)
    names = {profile.computing_thread: "compute"}
    names |= {track: "communication" + (f" {index + 1}" if index else "") for index, track in enumerate(sending)}
    names |= {track: f"thread {track}" for track in sorted({span.track for span in spans} - set(names), key=str)}
    tracks = {f"rank {profile.rank} phases": list(_phase_spans(profile))}
    for track, name in names.items():
        tracks[f"rank {profile.rank} {name}"] = [span for span in spans if span.track == track]
    return tracks


def _phase_spans(profile: ProfilerTrace) -> Iterator[Span]:
    for number, step in enumerate(profile.steps):
        yield Span(f"step {number}", step.started_ns, step.end_ns)
        for bar in step.bars:
            if bar.stream == "compute":
                start_ns, end_ns = (step.started_ns + round(1e3 * us) for us in (bar.start_us, bar.end_us))
                name = bar.label if bar.label in ("forward", "backward", "update") else f"gradient {bar.label}"
                yield Span(name, start_ns, end_ns)


def _timeline_tracks(timeline: HorovodTimeline) -> Tracks:
    """Return cycles, negotiations and all-reduces, then a track for each tensor."""
    tracks = {
        "Horovod cycles": [Span(_CYCLE, moment_ns, moment_ns) for moment_ns in timeline.cycles_ns],
        "Horovod negotiation": [Span("negotiation", *interval) for interval in timeline.negotiations()],
        "Horovod communication": [one._replace(name=f"{one.name}, {one.bytes} bytes") for one in timeline.buffers()],
    }
    for one in timeline.activities:
        tracks.setdefault(f"tensor {one.track}", []).append(one)
    return tracks


def _event(span: Span, process: int, track: int, zero_ns: int) -> dict[str, Any]:
    event = {"name": span.name, "ts": (span.start_ns - zero_ns) / 1e3, "pid": process, "tid": track}
    if span.name == _CYCLE:
        return {"ph": "i", "s": "t", **event}
    return {"ph": "X", **event, "dur": span.duration_us, "cat": span.category, "args": dict(span.args)}


def _name_events(kind: str, process: int, track: int, name: str, place: int) -> list[dict[str, Any]]:
    values = {f"{kind}_name": {"name": name}, f"{kind}_sort_index": {"sort_index": place}}
    return [{"ph": "M", "name": what, "pid": process, "tid": track, "args": args} for what, args in values.items()]
