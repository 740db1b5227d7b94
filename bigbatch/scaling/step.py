"""One simulated step: the compute stream and the communication stream from the forward pass to the update."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from bigbatch.scaling.allreduce import AllReduceCosts
from bigbatch.scaling.machine import FrozenModel, Machine
from bigbatch.scaling.phases import Bar, StepPhases, covered_time
from bigbatch.scaling.profile import Profile
from bigbatch.scaling.shared_cores import SharedCores


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
        return self.step_us - self.profile.compute_us

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


class SimulatedEngine(FrozenModel):
    """An engine with its options: simulates steps of ranks that all have the times of one profile.

    `zero_cost` names terms that cost nothing.
    """

    name: ClassVar[str]

    @abstractmethod
    def simulate_step(
        self, profile: Profile, machine: Machine, ranks: int, *, zero_cost: Collection[str] = ()
    ) -> SimulatedStep: ...

    def simulate_steps(
        self,
        profile: Profile,
        factors: Sequence[float],
        machine: Machine,
        ranks: int,
        *,
        zero_cost: Collection[str] = (),
    ) -> list[SimulatedStep]:
        """Simulate steps whose compute times are `factors` times those of the profile."""
        return [self.simulate_step(profile.scale_times(one), machine, ranks, zero_cost=zero_cost) for one in factors]


class CommunicationStream:
    """The all-reduces of one step, one after the other, beside the backward pass on the same cores."""

    def __init__(self, profile: Profile, costs: AllReduceCosts) -> None:
        self.costs = costs
        self.cores = SharedCores(profile)
        self.messages: list[SimulatedMessage] = []
        self.free_us = 0.0

    def send(self, ready_us: float, size_bytes: int, copies_us: float = 0.0, copies_cpu_us: float = 0.0) -> None:
        """Add a message that is ready at `ready_us`; copies to and from its buffer belong to it."""
        cost = self.costs.alone(size_bytes)
        start_us = max(ready_us, self.free_us)
        self.free_us = self.cores.add_message(
            start_us,
            cost.us + copies_us,
            self.costs.busy_us(size_bytes) + copies_us,
            self.costs.cpu_us(size_bytes) + copies_cpu_us,
        )
        self.messages.append(SimulatedMessage(start_us, self.free_us, size_bytes, cost.algorithm))
