"""A step of two tensors and a third, as the torch profiler and Horovod would have written it, in round numbers.

Moments in these comments are microseconds after second 1,000,000,000 since 1970.

    rank 0   1000 step, forward | 2000 backward | 2510 gradient b | 3500 c | 3520 a | 5000 update | 6000
    Horovod  2510-2600 negotiates b, 2600-3000 sends it; 3530-3700 negotiates a and c, 3700-4800 sends them together
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bigbatch.scaling.phases import Bar, StepPhases
from bigbatch.scaling.tracing.spans import EngineRecording, ProfilerTrace, parse_profiler_trace, read_timeline

SECOND_NS = 1_000_000_000 * 10**9
_TIMELINE_STARTED = 500


def event(name: str, start: float, end: float, thread: int = 7, **args: Any) -> dict[str, Any]:
    """As the torch profiler writes it."""
    fields = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": thread, "ts": start}
    return fields | {"dur": end - start, "args": args}


def step(later: float = 0.0, step_us: float = 5000.0) -> StepPhases:
    """The step of rank 0, `later` microseconds after it."""
    computed = (("forward", 0, 1000), ("b", 1000, 1510), ("c", 1510, 2500), ("a", 2500, 2520), ("update", 4000, 5000))
    return StepPhases(
        step_us=step_us,
        forward_us=1000.0,
        backward_us=1520.0,
        exposed_us=1480.0,
        overlapped_us=0.0,
        update_us=1000.0,
        bars=tuple(Bar("compute", label, start, end) for label, start, end in computed),
        started_ns=SECOND_NS + round(1e3 * (1000 + later)),
    )


def profiler_trace(
    events: list[dict[str, Any]], rank: int = 0, base_ns: int = SECOND_NS, steps: tuple[StepPhases, ...] | None = None
) -> ProfilerTrace:
    text = json.dumps({"baseTimeNanoseconds": base_ns, "traceEvents": events})
    return parse_profiler_trace(text, rank, steps or (step(),), computing_thread=7)


def recording(folder: Path) -> EngineRecording:
    """Rank 1 has another base, a second earlier, and begins its step 200 µs before rank 0."""
    second = profiler_trace([event("aten::mul", 1e6 + 900, 1e6 + 1000)], 1, SECOND_NS - 10**9, (step(-200),))
    timeline = read_timeline(write_timeline(folder / "timeline.json"))
    return EngineRecording("horovod", [profiler_trace([event("aten::mul", 1100, 1200)]), second], timeline)


def write_timeline(path: Path) -> Path:
    """As HOROVOD_TIMELINE has it: microseconds from its own start, tensors as processes, ends without names."""

    def began(tensor: int, name: str, moment: int) -> dict[str, Any]:
        return {"ph": "B", "name": name, "ts": moment - _TIMELINE_STARTED, "pid": tensor}

    def ended(tensor: int, moment: int, **args: str) -> dict[str, Any]:
        return {"ph": "E", "ts": moment - _TIMELINE_STARTED, "pid": tensor} | ({"args": args} if args else {})

    def tensor(number: int, name: str) -> dict[str, Any]:
        return {"name": "process_name", "ph": "M", "pid": number, "args": {"name": f"allreduce.{name}"}}

    started_us = SECOND_NS // 1000 + _TIMELINE_STARTED
    events = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": started_us}},
        {"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
        *(tensor(1, "b"), tensor(2, "a"), tensor(3, "c")),
        # of a step before the one that was profiled
        *(began(1, "ALLREDUCE", 700), began(1, "GLOO_ALLREDUCE", 710), ended(1, 740)),
        ended(1, 750, dtype="float32", shape="[100, 10]"),
        {"ph": "i", "name": "CYCLE_START", "ts": 2505 - _TIMELINE_STARTED, "s": "g"},
        began(1, "NEGOTIATE_ALLREDUCE", 2510),
        {"ph": "X", "name": "0", "ts": 2510 - _TIMELINE_STARTED, "pid": 1, "dur": 0},
        ended(1, 2600),
        *(began(1, "ALLREDUCE", 2600), began(1, "GLOO_ALLREDUCE", 2620), ended(1, 2990)),
        ended(1, 3000, dtype="float32", shape="[100, 10]"),
        *(began(2, "NEGOTIATE_ALLREDUCE", 3530), began(3, "NEGOTIATE_ALLREDUCE", 3535), ended(2, 3690), ended(3, 3700)),
        *(began(2, "ALLREDUCE", 3700), began(3, "ALLREDUCE", 3701)),
        *(began(2, "MEMCPY_IN_FUSION_BUFFER", 3710), began(3, "MEMCPY_IN_FUSION_BUFFER", 3711)),
        *(ended(2, 3750), ended(3, 3751)),
        *(began(2, "GLOO_ALLREDUCE", 3760), began(3, "GLOO_ALLREDUCE", 3762), ended(2, 4700), ended(3, 4702)),
        *(began(2, "MEMCPY_OUT_FUSION_BUFFER", 4710), began(3, "MEMCPY_OUT_FUSION_BUFFER", 4711)),
        *(ended(2, 4760), ended(3, 4761)),
        ended(2, 4790, dtype="float32", shape="[256]"),
        ended(3, 4800, dtype="float64", shape="[16, 2]"),
    ]
    path.write_text(json.dumps(events))
    return path


def crossing(trace: dict[str, Any]) -> list[tuple[str, str]]:
    """Events of one row that neither lie within each other nor apart: viewers draw nothing sensible of them."""
    found: list[tuple[str, str]] = []
    around: dict[tuple[int, int], list[tuple[str, float]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            outer = around.setdefault((event["pid"], event["tid"]), [])
            start, end = event["ts"], event["ts"] + event["dur"]
            while outer and outer[-1][1] <= start + 1e-6:
                outer.pop()
            if outer and end > outer[-1][1] + 1e-3:  # the trace has thousandths
                found.append((event["name"], outer[-1][0]))
            outer.append((event["name"], end))
    return found
