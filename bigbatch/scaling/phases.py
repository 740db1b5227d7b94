"""The phases of one training step on one rank: the one record that measured, traced and simulated steps share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

Moment = TypeVar("Moment", int, float)
Stream = Literal["compute", "negotiation", "communication", "queue", "copy"]  # the last two belong to one tensor


class Bar(NamedTuple):
    """An activity of one stream, in microseconds from the start of the step. Activities at the same time have
    different lanes. The label of an all-reduce is its algorithm or content, the label of a gradient its parameter.
    """

    stream: Stream
    label: str
    start_us: float
    end_us: float
    bytes: int = 0
    lane: int = 0


@dataclass(frozen=True)
class StepPhases:
    """One step of one rank, in microseconds.

    `exposed_us` is communication that no computation hides: from the rank's own last gradient to the end of the
    gradient sum over ranks. `overlapped_us` is communication before that gradient. Both are None where the engine
    does not show when a gradient is ready, as FSDP.
    """

    step_us: float
    forward_us: float
    backward_us: float  # computation: up to the rank's own last gradient
    exposed_us: float | None
    overlapped_us: float | None
    update_us: float
    negotiation_us: float | None = None  # Horovod: while ranks agreed on at least one tensor
    bars: tuple[Bar, ...] = ()
    started_ns: int = 0  # since 1970; 0 for a simulated step

    @property
    def messages(self) -> list[Bar]:
        """The collectives of the step, in the order of their start."""
        return sorted((bar for bar in self.bars if bar.stream == "communication"), key=lambda bar: bar.start_us)

    @property
    def message_bytes(self) -> tuple[int, ...]:
        return tuple(bar.bytes for bar in self.messages)

    @property
    def communication_us(self) -> float:
        """The time in which at least one collective ran, hidden or not."""
        return covered_time(((bar.start_us, bar.end_us) for bar in self.messages), until=self.step_us)

    @property
    def end_ns(self) -> int:
        return self.started_ns + round(1e3 * self.step_us)


def merge_intervals(intervals: Iterable[tuple[Moment, Moment]]) -> list[tuple[Moment, Moment]]:
    """Return the union of the intervals as disjoint intervals, in order."""
    merged: list[tuple[Moment, Moment]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def covered_time(intervals: Iterable[tuple[Moment, Moment]], until: Moment) -> Moment:
    """Return the time before `until` that at least one interval covers."""
    total = until - until
    for start, end in merge_intervals(intervals):
        total += max(start, min(end, until)) - start
    return total
