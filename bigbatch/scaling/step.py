"""One simulated step: what the compute stream and the communication stream do, from the forward pass to the update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from bigbatch.scaling.profile import Profile

Stream = Literal["compute", "negotiation", "communication"]


class Bar(NamedTuple):
    """Something that a stream does."""

    stream: Stream
    label: str
    start_us: float
    end_us: float
    bytes: int = 0


class Sent(NamedTuple):
    """One all-reduce on the communication stream, counted from the start of the backward pass."""

    start_us: float
    end_us: float
    bytes: int
    how: str


@dataclass(frozen=True)
class Step:
    """A step of the slowest rank."""

    ranks: int
    compute_us: float
    step_us: float
    bars: tuple[Bar, ...]
    all_reduces: int

    @property
    def exposed_us(self) -> float:
        """Communication that no computation hides."""
        return self.step_us - self.compute_us


def assembled(profile: Profile, ranks: int, sent: Sequence[Sent], negotiations: Sequence[tuple[float, float]]) -> Step:
    """The update waits for the backward pass and for the last all-reduce."""
    start_us = profile.forward_us
    backward_end_us = start_us + profile.backward_us
    summed_us = max([backward_end_us, *(start_us + one.end_us for one in sent)])
    step_us = summed_us + profile.update_us
    bars = [Bar("compute", "forward", 0.0, start_us)]
    now_us = start_us
    for layer in profile.layers:
        bars.append(Bar("compute", layer.name, now_us, now_us + layer.backward_us, sum(layer.gradient_bytes)))
        now_us += layer.backward_us
    if profile.update_us:
        bars.append(Bar("compute", "update", summed_us, step_us))
    bars += [Bar("negotiation", "negotiate", start_us + start, start_us + end) for start, end in negotiations]
    bars += [
        Bar("communication", f"{one.how}, {one.bytes / 2**20:.2f} MiB", start_us + one.start_us, start_us + one.end_us,
            one.bytes)
        for one in sent
    ]  # fmt: skip
    return Step(ranks, profile.compute_us, step_us, tuple(bars), len(sent))
