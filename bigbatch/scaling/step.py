"""One simulated step: the compute stream and the communication stream from the forward pass to the update.

A GPU communicates while it computes, and neither slows the other. Where ranks sum on their own cores (gloo), an
all-reduce takes CPU time from the computation (`AllReduceTimes.cpu_points`), and takes longer itself meanwhile
(`AllReduceTimes.busy_points`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from bigbatch.scaling.allreduce import AllReduceCosts
from bigbatch.scaling.machine import FrozenModel, Machine
from bigbatch.scaling.phases import Bar, StepPhases, covered_time
from bigbatch.scaling.profile import Profile

_LEAST_SPEED = 0.05  # computing never stops: the scheduler gives it its turns


@dataclass
class SharedCores:
    """The backward pass of one rank over time. Messages are added in the order of time and do not overlap."""

    profile: Profile
    slowdowns: list[tuple[float, float, float]] = field(default_factory=list)  # start, end, speed of computing

    def time_of_progress(self, progress_us: float) -> float:
        """Return when computing has done what takes `progress_us` without communication."""
        now_us = done_us = 0.0
        for start_us, end_us, speed in self.slowdowns:
            if done_us + (start_us - now_us) >= progress_us:
                break
            done_us += start_us - now_us
            if done_us + (end_us - start_us) * speed >= progress_us:
                return start_us + (progress_us - done_us) / speed
            done_us += (end_us - start_us) * speed
            now_us = end_us
        return now_us + progress_us - done_us

    def add_message(self, start_us: float, alone_us: float, busy_us: float, cpu_us: float) -> float:
        """Return the end of a message: `alone_us` on idle cores; `busy_us` beside computing, which loses `cpu_us`."""
        if not cpu_us and alone_us == busy_us:
            return start_us + alone_us
        computed_us = self.time_of_progress(self.profile.backward_us)
        if start_us >= computed_us:
            return start_us + alone_us
        speed = max(_LEAST_SPEED, 1 - cpu_us / busy_us)
        both_until_us = min(start_us + busy_us, start_us + (computed_us - start_us) / speed)
        self.slowdowns.append((start_us, both_until_us, speed))
        left_us = alone_us * (1 - (both_until_us - start_us) / busy_us)
        return both_until_us + left_us

    def slowed_profile(self) -> Profile:
        """Return the profile with the time that each layer took."""
        if not self.slowdowns:
            return self.profile
        layers, progress_us, now_us = [], 0.0, 0.0
        for layer in self.profile.layers:
            progress_us += layer.backward_us
            end_us = self.time_of_progress(progress_us)
            layers.append(replace(layer, backward_us=end_us - now_us))
            now_us = end_us
        return replace(self.profile, layers=tuple(layers))


@dataclass(frozen=True)
class SimulatedStep:
    """A step of the slowest rank: its computation, and its communication in times from the start of backward."""

    profile: Profile
    ranks: int
    messages: tuple[Bar, ...] = ()
    negotiations: tuple[Bar, ...] = ()
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
        bars += [
            bar._replace(start_us=start_us + bar.start_us, end_us=start_us + bar.end_us)
            for bar in (*self.negotiations, *self.messages)
        ]
        sent = [(bar.start_us, bar.end_us) for bar in self.messages]
        agreed_us = sum(bar.end_us - bar.start_us for bar in self.negotiations)  # one after the other
        return StepPhases(
            step_us=self.step_us,
            forward_us=self.profile.forward_us,
            backward_us=self.profile.backward_us,
            exposed_us=self.exposed_us,
            overlapped_us=covered_time(sent, until=self.profile.backward_us),
            update_us=self.profile.update_us,
            negotiation_us=agreed_us if self.negotiations else None,
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
        self.messages: list[Bar] = []
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
        label = f"{cost.algorithm}, {size_bytes / 2**20:.2f} MiB"
        self.messages.append(Bar("communication", label, start_us, self.free_us, size_bytes))
