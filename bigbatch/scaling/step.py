"""One simulated step: the compute stream and the communication stream from the forward pass to the update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from bigbatch.scaling.phases import Bar, StepPhases, covered_time
from bigbatch.scaling.profile import Profile


class SimulatedMessage(NamedTuple):
    """One all-reduce on the communication stream. Times are from the start of the backward pass."""

    start_us: float
    end_us: float
    bytes: int
    algorithm: str


@dataclass(frozen=True)
class SimulatedStep:
    """A step of the slowest rank: its computation, and its communication from the start of the backward pass."""

    profile: Profile
    ranks: int
    messages: tuple[SimulatedMessage, ...] = ()
    negotiations: tuple[tuple[float, float], ...] = ()  # start and end
    next_cycle_us: float = 0.0  # Horovod: when its next cycle begins

    @property
    def compute_us(self) -> float:
        return self.profile.compute_us

    @property
    def update_start_us(self) -> float:
        """The end of the backward pass and of the last all-reduce."""
        last_us = self.messages[-1].end_us if self.messages else 0.0
        return self.profile.forward_us + max(self.profile.backward_us, last_us)

    @property
    def step_us(self) -> float:
        return self.update_start_us + self.profile.update_us

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
            bars.append(Bar("compute", "update", self.update_start_us, self.step_us))
        bars += [Bar("negotiation", "negotiate", start_us + start, start_us + end) for start, end in self.negotiations]
        for one in self.messages:
            label = f"{one.algorithm}, {one.bytes / 2**20:.2f} MiB"
            bars.append(Bar("communication", label, start_us + one.start_us, start_us + one.end_us, one.bytes))
        sent = [(one.start_us, one.end_us) for one in self.messages]
        return StepPhases(
            step_us=self.step_us,
            forward_us=self.profile.forward_us,
            backward_us=self.profile.backward_us,
            exposed_us=self.exposed_us,
            overlapped_us=covered_time(sent, until=self.profile.backward_us),
            update_us=self.profile.update_us,
            negotiation_us=covered_time(self.negotiations, until=self.step_us) if self.negotiations else None,
            bars=tuple(bars),
        )
