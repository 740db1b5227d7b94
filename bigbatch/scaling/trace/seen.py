"""One step that really ran, in numbers: its phases, its messages, what was hidden and what was waited for."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bigbatch.errors import Problem
from bigbatch.scaling.step import Bar, Stream
from bigbatch.scaling.trace import profiler
from bigbatch.scaling.trace.profiler import Profile, Span
from bigbatch.scaling.trace.timeline import Activity, Timeline, union


@dataclass(frozen=True)
class Seen:
    """A step of one rank. Moments are microseconds from its start.

    `waiting_us` is communication that no computation hid: from the rank's last own gradient to the end of the
    backward pass, when all ranks' gradients are summed. `overlapped_us` is communication before that gradient. Both
    are None where gradients leave no marks, as with FSDP, and computing cannot be told from waiting.
    """

    engine: str
    ranks: int
    rank: int
    number: int  # of the traced steps
    step_us: float
    forward_us: float
    backward_us: float  # computation: up to the last own gradient
    waiting_us: float | None
    update_us: float
    overlapped_us: float | None
    communication_us: float
    negotiation_us: float | None  # only Horovod does
    message_bytes: tuple[int, ...]
    bars: tuple[Bar, ...]
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
    sent = union((message.start_ns, message.end_ns) for message, _ in messages)
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
    return Seen(
        engine=engine,
        ranks=ranks,
        rank=profile.rank,
        number=number,
        step_us=_us(step.end_ns, step.start_ns),
        forward_us=_length(forward),
        backward_us=(own_end_ns - backward.start_ns) / 1e3,
        waiting_us=(backward.end_ns - own_end_ns) / 1e3 if gradients else None,
        update_us=_length(update),
        overlapped_us=_covered_us(sent, own_end_ns) if gradients else None,
        communication_us=_covered_us(sent, step.end_ns),
        negotiation_us=_covered_us(asked, step.end_ns) if timeline else None,
        message_bytes=tuple(message.bytes for message, _ in messages),
        bars=tuple(bars),
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


def _covered_us(pieces: Sequence[tuple[int, int]], until_ns: int) -> float:
    return sum(max(0, min(end_ns, until_ns) - start_ns) for start_ns, end_ns in pieces) / 1e3


def _us(moment_ns: int, zero_ns: int) -> float:
    return (moment_ns - zero_ns) / 1e3


def _length(span: Span) -> float:
    return _us(span.end_ns, span.start_ns)
