"""One step that really ran, in numbers: its phases, its messages, what was hidden and what was waited for."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bigbatch.errors import Problem
from bigbatch.scaling.phases import Bar, StepPhases, Stream, covered_time, merge_intervals
from bigbatch.scaling.trace import profiler
from bigbatch.scaling.trace.profiler import Profile, Span
from bigbatch.scaling.trace.timeline import Activity, Timeline


@dataclass(frozen=True)
class Seen:
    """A step of one rank. `communication_us`: while at least one collective ran, hidden or not."""

    engine: str
    ranks: int
    rank: int
    number: int  # of the traced steps
    phases: StepPhases
    communication_us: float
    tensors: tuple[Bar, ...] = ()  # Horovod's timeline: what happened to each tensor, whose name is the label


def fastest(engine: str, ranks: int, profile: Profile, timeline: Timeline | None) -> Seen:
    """The traced step that took least: the one that others on the machine disturbed least."""
    steps = profile.spans(profiler.STEP)
    if not steps:
        raise Problem(f"the trace of engine '{engine}' has no whole step: trace again, or with more --steps")
    index = min(range(len(steps)), key=lambda number: steps[number].end_ns - steps[number].start_ns)
    return of_step(engine, ranks, profile, timeline, steps[index], index)


def of_step(engine: str, ranks: int, profile: Profile, timeline: Timeline | None, step: Span, number: int) -> Seen:
    forward, backward, update = (
        _within(profile.spans(name), step)[0] for name in (profiler.FORWARD, profiler.BACKWARD, profiler.UPDATE)
    )
    gradients = _within(profile.spans(profiler.GRADIENT), backward)
    own_end_ns = max((gradient.end_ns for gradient in gradients), default=backward.end_ns)
    own_timeline = timeline.between(step.start_ns, step.end_ns) if timeline else None
    messages = _messages(profile, own_timeline, step)
    sent = merge_intervals((message.start_ns, message.end_ns) for message, _ in messages)
    asked = own_timeline.negotiating() if own_timeline else []
    zero_ns = step.start_ns
    bars = [
        *_compute(step, forward, backward, update, gradients),
        *(Bar("negotiation", "negotiate", _us(start_ns, zero_ns), _us(end_ns, zero_ns)) for start_ns, end_ns in asked),
        *(
            Bar("communication", one.name, _us(one.start_ns, zero_ns), _us(one.end_ns, zero_ns), one.bytes, lane)
            for one, lane in messages
        ),
    ]
    phases = StepPhases(
        step_us=_us(step.end_ns, step.start_ns),
        forward_us=_length(forward),
        backward_us=(own_end_ns - backward.start_ns) / 1e3,
        exposed_us=(backward.end_ns - own_end_ns) / 1e3 if gradients else None,
        overlapped_us=covered_time(sent, until=own_end_ns) / 1e3 if gradients else None,
        update_us=_length(update),
        negotiation_us=covered_time(asked, until=step.end_ns) / 1e3 if timeline else None,
        bars=tuple(bars),
        started_ns=step.start_ns,
    )
    return Seen(
        engine=engine,
        ranks=ranks,
        rank=profile.rank,
        number=number,
        phases=phases,
        communication_us=covered_time(sent, until=step.end_ns) / 1e3,
        tensors=tuple(_tensors(own_timeline, gradients, step.start_ns)) if own_timeline else (),
    )


def typical_step_us(profile: Profile) -> float:
    """The median over the traced steps."""
    return statistics.median(_length(step) for step in profile.spans(profiler.STEP))


def _compute(step: Span, forward: Span, backward: Span, update: Span, gradients: Sequence[Span]) -> list[Bar]:
    """The backward pass is divided where a gradient was there: its bar is the work since the one before."""
    found = [Bar("compute", "forward", _us(forward.start_ns, step.start_ns), _us(forward.end_ns, step.start_ns))]
    before_us = _us(backward.start_ns, step.start_ns)
    for gradient in gradients:
        ready_us = _us(gradient.end_ns, step.start_ns)
        found.append(Bar("compute", _named(gradient), before_us, ready_us))
        before_us = ready_us
    if not gradients:
        found.append(Bar("compute", "backward", before_us, _us(backward.end_ns, step.start_ns)))
    found.append(Bar("compute", "update", _us(update.start_ns, step.start_ns), _us(update.end_ns, step.start_ns)))
    return found


def _messages(profile: Profile, timeline: Timeline | None, step: Span) -> list[tuple[Span, int]]:
    """torch's collectives, a lane for each thread that sends; or Horovod's buffers, one after the other."""
    if timeline is not None:
        return [
            (Span(f"{len(one.tensors)} tensors", one.start_ns, one.end_ns, bytes=one.bytes), 0)
            for one in timeline.buffers()
        ]
    sent = _within(profile.messages(), step)
    lanes = list(dict.fromkeys(message.thread for message in sent))
    return [(message, lanes.index(message.thread)) for message in sent]


def _tensors(timeline: Timeline, gradients: Sequence[Span], zero_ns: int) -> list[Bar]:
    """For each tensor: the time in the queue, from its gradient to its operation, and what was then done with it."""
    ready_ns = {_named(gradient): gradient.start_ns for gradient in gradients}
    found = []
    begun: set[str] = set()
    for one in timeline.activities:
        if one.tensor not in begun and not one.negotiates:
            begun.add(one.tensor)
            if one.tensor in ready_ns:
                found.append(Bar("queue", one.tensor, _us(ready_ns[one.tensor], zero_ns), _us(one.start_ns, zero_ns)))
        stream = _stream(one)
        if stream is not None:
            found.append(Bar(stream, one.tensor, _us(one.start_ns, zero_ns), _us(one.end_ns, zero_ns), one.bytes))
    return found


def _stream(activity: Activity) -> Stream | None:
    if activity.negotiates:
        return "negotiation"
    if activity.copies:
        return "copy"
    return "communication" if activity.sends else None


def _named(gradient: Span) -> str:
    return gradient.name.removeprefix(profiler.GRADIENT).strip()


def _within(spans: Sequence[Span], outer: Span) -> list[Span]:
    return [span for span in spans if outer.start_ns <= span.start_ns < outer.end_ns]


def _us(moment_ns: int, zero_ns: int) -> float:
    return (moment_ns - zero_ns) / 1e3


def _length(span: Span) -> float:
    return _us(span.end_ns, span.start_ns)
