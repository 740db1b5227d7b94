"""One simulated step: what the compute stream and the communication stream do, from the forward pass to the update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from bigbatch.scaling.phases import Bar, StepPhases, covered_time
from bigbatch.scaling.profile import Profile


class Sent(NamedTuple):
    """One all-reduce on the communication stream, counted from the start of the backward pass."""

    start_us: float
    end_us: float
    bytes: int
    how: str


@dataclass(frozen=True)
class Step:
    """A step of the slowest rank: its computation, and what is sent and asked beside the backward pass."""

    profile: Profile
    ranks: int
    sent: tuple[Sent, ...] = ()
    asked: tuple[tuple[float, float], ...] = ()  # negotiations, from and to, counted from the start of backward
    next_cycle_us: float = 0.0  # Horovod: when it would ask again, counted from there too

    @property
    def compute_us(self) -> float:
        return self.profile.compute_us

    @property
    def summed_us(self) -> float:
        """When the update can begin: the backward pass is over, and so is the last all-reduce."""
        last_us = self.sent[-1].end_us if self.sent else 0.0
        return self.profile.forward_us + max(self.profile.backward_us, last_us)

    @property
    def step_us(self) -> float:
        return self.summed_us + self.profile.update_us

    @property
    def exposed_us(self) -> float:
        """Communication that no computation hides."""
        return self.step_us - self.compute_us

    def phases(self) -> StepPhases:
        """Return the record of this step, with the activities of every stream."""
        start_us = self.profile.forward_us
        bars = [Bar("compute", "forward", 0.0, start_us)]
        now_us = start_us
        for layer in self.profile.layers:
            bars.append(Bar("compute", layer.name, now_us, now_us + layer.backward_us, sum(layer.gradient_bytes)))
            now_us += layer.backward_us
        if self.profile.update_us:
            bars.append(Bar("compute", "update", self.summed_us, self.step_us))
        bars += [Bar("negotiation", "negotiate", start_us + start, start_us + end) for start, end in self.asked]
        for one in self.sent:
            label = f"{one.how}, {one.bytes / 2**20:.2f} MiB"
            bars.append(Bar("communication", label, start_us + one.start_us, start_us + one.end_us, one.bytes))
        sent = [(one.start_us, one.end_us) for one in self.sent]
        return StepPhases(
            step_us=self.step_us,
            forward_us=self.profile.forward_us,
            backward_us=self.profile.backward_us,
            exposed_us=self.exposed_us,
            overlapped_us=covered_time(sent, until=self.profile.backward_us),
            update_us=self.profile.update_us,
            negotiation_us=covered_time(self.asked, until=self.step_us) if self.asked else None,
            bars=tuple(bars),
        )
