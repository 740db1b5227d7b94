"""One traced step in numbers: its phases, its collectives, and what happened to each tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast, get_args

from bigbatch.errors import Problem
from bigbatch.scaling.phases import Bar, StepPhases, Stream, covered_time
from bigbatch.scaling.tracing import spans
from bigbatch.scaling.tracing.spans import EngineRecording, HorovodTimeline, Span


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
    """Return the shortest traced step of rank 0: the one that other processes disturbed least."""
    profile = recording.profiles[0]
    steps = profile.marks(spans.STEP)
    if not steps:
        raise Problem(f"the trace of engine '{recording.engine}' has no whole step: rerun it, or with more --steps")
    step = min(steps, key=lambda step: step.duration_us)
    forward, backward, update = (
        next(mark for mark in profile.marks(name) if mark.within(step))
        for name in (spans.FORWARD, spans.BACKWARD, spans.UPDATE)
    )
    gradients = [
        mark._replace(name=mark.name.removeprefix(spans.GRADIENT).strip())
        for mark in profile.marks(spans.GRADIENT)
        if mark.within(backward)
    ]
    own_end_ns = max((gradient.end_ns for gradient in gradients), default=backward.end_ns)
    # Horovod's fused all-reduces, or torch's collectives with a lane for each of its threads
    timeline = recording.timeline.between(step.start_ns, step.end_ns) if recording.timeline else None
    collectives = timeline.buffers() if timeline else [one for one in profile.collectives() if one.within(step)]
    lanes = list(dict.fromkeys(one.track for one in collectives))
    negotiations = timeline.negotiations() if timeline else []
    sent = [(one.start_ns, one.end_ns) for one in collectives]

    # backward is divided where a gradient was ready: a bar is the computation since the one before
    bars = [_bar("compute", "forward", forward, step)]
    since_ns = backward.start_ns
    for one in gradients or [backward._replace(name="backward")]:
        bars.append(_bar("compute", one.name, Span("", since_ns, one.end_ns), step))
        since_ns = one.end_ns
    bars.append(_bar("compute", "update", update, step))
    bars += [_bar("negotiation", "negotiate", Span("", *interval), step) for interval in negotiations]
    bars += [_bar("communication", one.name, one, step)._replace(lane=lanes.index(one.track)) for one in collectives]
    phases = StepPhases(
        step_us=step.duration_us,
        forward_us=forward.duration_us,
        backward_us=(own_end_ns - backward.start_ns) / 1e3,
        exposed_us=(backward.end_ns - own_end_ns) / 1e3 if gradients else None,
        overlapped_us=covered_time(sent, until=own_end_ns) / 1e3 if gradients else None,
        update_us=update.duration_us,
        negotiation_us=covered_time(negotiations, until=step.end_ns) / 1e3 if timeline else None,
        bars=tuple(bars),
        started_ns=step.start_ns,
    )
    return TracedStep(
        engine=recording.engine,
        ranks=len(recording.profiles),
        rank=profile.rank,
        number=steps.index(step),
        phases=phases,
        communication_us=covered_time(sent, until=step.end_ns) / 1e3,
        tensors=tuple(_tensor_bars(timeline, gradients, step)) if timeline else (),
    )


def _tensor_bars(timeline: HorovodTimeline, gradients: Sequence[Span], step: Span) -> Iterator[Bar]:
    """For each tensor: the time in the queue, from its gradient to its operation, and the activities after it."""
    ready_ns = {gradient.name: gradient.start_ns for gradient in gradients}
    for one in timeline.activities:
        tensor = str(one.track)
        if one.category != "negotiation" and tensor in ready_ns:  # the first after the negotiation
            yield _bar("queue", tensor, Span("", ready_ns.pop(tensor), one.start_ns), step)
        if one.category in get_args(Stream):
            yield _bar(cast("Stream", one.category), tensor, one, step)


def _bar(stream: Stream, label: str, span: Span, step: Span) -> Bar:
    start_us, end_us = ((moment_ns - step.start_ns) / 1e3 for moment_ns in (span.start_ns, span.end_ns))
    return Bar(stream, label, start_us, end_us, span.bytes)
