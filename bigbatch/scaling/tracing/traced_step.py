"""One traced step in numbers: its phases, its collectives, and what happened to each tensor."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bigbatch.errors import Problem
from bigbatch.scaling.phases import Bar, StepPhases, Stream, covered_time
from bigbatch.scaling.tracing import profiler_trace as marks
from bigbatch.scaling.tracing.chrome_trace import EngineRecording
from bigbatch.scaling.tracing.horovod_timeline import HorovodTimeline, TensorActivity
from bigbatch.scaling.tracing.profiler_trace import ProfilerTrace, Span


@dataclass(frozen=True)
class TracedStep:
    """A step of rank 0. `communication_us`: while at least one collective ran, hidden or not."""

    engine: str
    ranks: int
    rank: int
    number: int  # of the traced steps
    phases: StepPhases
    communication_us: float
    tensors: tuple[Bar, ...] = ()  # from Horovod's timeline; a bar's label is the tensor's name


def fastest_step(recording: EngineRecording) -> TracedStep:
    """Return the shortest traced step: the one that other processes disturbed least."""
    steps = recording.profiles[0].marks(marks.STEP)
    if not steps:
        raise Problem(f"the trace of engine '{recording.engine}' has no whole step: rerun it, or with more --steps")
    number = min(range(len(steps)), key=lambda index: steps[index].end_ns - steps[index].start_ns)
    return _describe_step(recording, steps[number], number)


def median_step_us(profile: ProfilerTrace) -> float:
    return statistics.median(_duration_us(step) for step in profile.marks(marks.STEP))


def _describe_step(recording: EngineRecording, step: Span, number: int) -> TracedStep:
    profile, zero_ns = recording.profiles[0], step.start_ns
    forward, backward, update = (
        _within(profile.marks(name), step)[0] for name in (marks.FORWARD, marks.BACKWARD, marks.UPDATE)
    )
    gradients = _within(profile.marks(marks.GRADIENT), backward)
    own_end_ns = max((gradient.end_ns for gradient in gradients), default=backward.end_ns)
    timeline = recording.timeline.between(step.start_ns, step.end_ns) if recording.timeline else None
    collectives = _collectives(profile, timeline, step)
    sent = [(one.start_ns, one.end_ns) for one, _ in collectives]
    negotiations = timeline.negotiations() if timeline else []
    bars = [
        *_compute_bars(step, forward, backward, update, gradients),
        *(_bar("negotiation", "negotiate", start_ns, end_ns, zero_ns) for start_ns, end_ns in negotiations),
        *(
            _bar("communication", one.name, one.start_ns, one.end_ns, zero_ns)._replace(bytes=one.bytes, lane=lane)
            for one, lane in collectives
        ),
    ]
    phases = StepPhases(
        step_us=_duration_us(step),
        forward_us=_duration_us(forward),
        backward_us=(own_end_ns - backward.start_ns) / 1e3,
        exposed_us=(backward.end_ns - own_end_ns) / 1e3 if gradients else None,
        overlapped_us=covered_time(sent, until=own_end_ns) / 1e3 if gradients else None,
        update_us=_duration_us(update),
        negotiation_us=covered_time(negotiations, until=step.end_ns) / 1e3 if timeline else None,
        bars=tuple(bars),
        started_ns=step.start_ns,
    )
    return TracedStep(
        engine=recording.engine,
        ranks=len(recording.profiles),
        rank=profile.rank,
        number=number,
        phases=phases,
        communication_us=covered_time(sent, until=step.end_ns) / 1e3,
        tensors=tuple(_tensor_bars(timeline, gradients, zero_ns)) if timeline else (),
    )


def _compute_bars(step: Span, forward: Span, backward: Span, update: Span, gradients: Sequence[Span]) -> list[Bar]:
    """Divide the backward pass where a gradient was ready: a bar is the computation since the one before."""
    bars = [_bar("compute", "forward", forward.start_ns, forward.end_ns, step.start_ns)]
    since_ns = backward.start_ns
    for gradient in gradients:
        bars.append(_bar("compute", _parameter_name(gradient), since_ns, gradient.end_ns, step.start_ns))
        since_ns = gradient.end_ns
    if not gradients:
        bars.append(_bar("compute", "backward", since_ns, backward.end_ns, step.start_ns))
    return [*bars, _bar("compute", "update", update.start_ns, update.end_ns, step.start_ns)]


def _collectives(profile: ProfilerTrace, timeline: HorovodTimeline | None, step: Span) -> list[tuple[Span, int]]:
    """Return torch's collectives, with a lane for each thread; or Horovod's fused all-reduces, all on one lane."""
    if timeline is not None:
        return [
            (Span(f"{len(one.tensors)} tensors", one.start_ns, one.end_ns, bytes=one.bytes), 0)
            for one in timeline.buffers()
        ]
    collectives = _within(profile.collectives(), step)
    lanes = list(dict.fromkeys(one.thread for one in collectives))
    return [(one, lanes.index(one.thread)) for one in collectives]


def _tensor_bars(timeline: HorovodTimeline, gradients: Sequence[Span], zero_ns: int) -> list[Bar]:
    """For each tensor: the time in the queue, from its gradient to its operation, and the activities after it."""
    ready_ns = {_parameter_name(gradient): gradient.start_ns for gradient in gradients}
    bars = []
    started: set[str] = set()
    for one in timeline.activities:
        if one.tensor not in started and not one.is_negotiation:
            started.add(one.tensor)
            if one.tensor in ready_ns:
                bars.append(_bar("queue", one.tensor, ready_ns[one.tensor], one.start_ns, zero_ns))
        stream = _activity_stream(one)
        if stream is not None:
            bars.append(_bar(stream, one.tensor, one.start_ns, one.end_ns, zero_ns)._replace(bytes=one.bytes))
    return bars


def _activity_stream(activity: TensorActivity) -> Stream | None:
    if activity.is_negotiation:
        return "negotiation"
    if activity.is_copy:
        return "copy"
    return "communication" if activity.is_all_reduce else None


def _parameter_name(gradient: Span) -> str:
    return gradient.name.removeprefix(marks.GRADIENT).strip()


def _within(spans: Sequence[Span], outer: Span) -> list[Span]:
    return [span for span in spans if outer.start_ns <= span.start_ns < outer.end_ns]


def _bar(stream: Stream, label: str, start_ns: int, end_ns: int, zero_ns: int) -> Bar:
    return Bar(stream, label, (start_ns - zero_ns) / 1e3, (end_ns - zero_ns) / 1e3)


def _duration_us(span: Span) -> float:
    return (span.end_ns - span.start_ns) / 1e3
