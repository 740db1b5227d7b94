"""Horovod: in every cycle a thread asks all ranks which gradients are ready, fuses those, and sums them.

With the response cache this negotiation is one all-reduce of a bit vector per cycle. Without it, or for tensors that
are not in it, rank 0 gathers the requests of every rank, reads them one by one and broadcasts the answer. The cache
evicts the least recently used entry, so with more tensors than entries a step finds none of its tensors in it.
(horovod/common/controller.cc, operations.cc; version 0.28.)
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import ClassVar

from pydantic import Field

from bigbatch.scaling.allreduce import AllReduceCosts
from bigbatch.scaling.machine import Machine
from bigbatch.scaling.phases import Bar
from bigbatch.scaling.profile import Gradient, Profile
from bigbatch.scaling.step import CommunicationStream, SimulatedEngine, SimulatedStep

MIB = 2**20
_WARMUP_STEPS = 4  # in which steps fall into phase with the cycles
_LEAST_STEPS = 8  # after those
_GATHER_AND_BROADCAST = 4  # collectives of an uncached cycle: sizes and requests to rank 0, size and responses back


def fuse_gradients(gradients: list[Gradient], limit_bytes: float) -> list[list[Gradient]]:
    """Return the gradients of each fusion buffer: in order, each in the last buffer unless that exceeds the limit."""
    buffers: list[list[Gradient]] = []
    filled = 0
    for gradient in gradients:
        if buffers and filled + gradient.bytes <= limit_bytes:
            buffers[-1].append(gradient)
            filled += gradient.bytes
        else:
            buffers.append([gradient])
            filled = gradient.bytes
    return buffers


class SimulatedHorovod(SimulatedEngine):
    """`request_us`: what rank 0 needs for one request of one rank; assumed, never measured here.

    An MB is 2^20 bytes.
    """

    name: ClassVar[str] = "horovod"
    cycle_ms: float = Field(1.0, gt=0)
    fusion_mb: float = Field(128.0, ge=0)
    cache_capacity: int = Field(1024, ge=0)  # 0: no response cache, as before version 0.16.2
    request_us: float = Field(1.0, ge=0)

    def negotiation_us(self, requests: int, cached: bool, machine: Machine, ranks: int) -> float:
        """The time of one cycle's negotiation."""
        collective_us = math.ceil(math.log2(ranks)) * machine.control_us
        if cached:
            return collective_us
        return _GATHER_AND_BROADCAST * collective_us + ranks * requests * self.request_us

    def idle_cycle_us(
        self, machine: Machine, ranks: int, *, cached: bool = True, zero_cost: Collection[str] = ()
    ) -> float:
        """The time from one cycle to the next while there is nothing to send."""
        negotiates = float("negotiation" not in zero_cost)
        return max(self.cycle_ms * 1e3, negotiates * self.negotiation_us(0, cached, machine, ranks))

    def simulate_steps(
        self,
        profile: Profile,
        factors: Sequence[float],
        machine: Machine,
        ranks: int,
        *,
        zero_cost: Collection[str] = (),
    ) -> list[SimulatedStep]:
        """Simulate consecutive steps whose compute times are `factors` times those of the profile.

        A step that ends with a cycle's last message begins the next one there, so that steps fall into phase with
        cycles that are long compared with the jitter.
        """
        steps: list[SimulatedStep] = []
        first_cycle_us = profile.forward_us
        counted = len(factors) * math.ceil(_LEAST_STEPS / len(factors))  # each factor as often as the others
        for number in range(-_WARMUP_STEPS, counted):
            scaled = profile.scale_times(factors[number % len(factors)])
            step = self.simulate_step(scaled, machine, ranks, zero_cost=zero_cost, first_cycle_us=first_cycle_us)
            first_cycle_us = step.profile.forward_us + step.next_cycle_us - step.step_us
            steps.append(step)
        return steps[_WARMUP_STEPS:]

    def simulate_step(
        self,
        profile: Profile,
        machine: Machine,
        ranks: int,
        *,
        zero_cost: Collection[str] = (),
        first_cycle_us: float | None = None,
    ) -> SimulatedStep:
        """A cycle begins `first_cycle_us` after the step does; None: with the backward pass."""
        if ranks == 1:
            return SimulatedStep(profile, ranks)
        cached = sum(len(layer.gradient_bytes) for layer in profile.layers) <= self.cache_capacity
        cycle_us = self.cycle_ms * 1e3
        pause_us = self.idle_cycle_us(machine, ranks, cached=cached, zero_cost=zero_cost)
        negotiates = float("negotiation" not in zero_cost)
        # cycles take place whether there is anything to send or not
        profile = profile.scale_times(1 / (1 - min(0.9, machine.cycle_cost_us / pause_us)))
        stream = CommunicationStream(profile, AllReduceCosts(ranks, machine, self.name, zero_cost))
        negotiations: list[Bar] = []
        cycle_start_us = 0.0 if first_cycle_us is None else first_cycle_us - profile.forward_us

        def pass_cycles(until_us: float) -> float:
            """Return the start of the first cycle from `until_us` on; cycles before it only pass time."""
            return cycle_start_us + pause_us * max(0, math.ceil((until_us - cycle_start_us) / pause_us))

        def take_cycle(buffers: list[list[Gradient]]) -> float:
            """Agree on the gradients, sum them, and return the start of the next cycle."""
            requests = sum(map(len, buffers))
            agreed_us = cycle_start_us + negotiates * self.negotiation_us(requests, cached, machine, ranks)
            negotiations.append(Bar("negotiation", "negotiate", cycle_start_us, agreed_us))
            for buffer in buffers:
                size = sum(gradient.bytes for gradient in buffer)
                stream.send(agreed_us, size, *_fusion_copies_us(len(buffer), size, machine))
            return max(cycle_start_us + cycle_us, stream.free_us if machine.blocking else agreed_us)

        gradients = profile.gradients()
        ready_us = [gradient.ready_us for gradient in gradients]
        done = 0
        while done < len(gradients):
            cycle_start_us = pass_cycles(ready_us[done])
            ready = gradients[done : bisect_right(ready_us, cycle_start_us)]
            done += len(ready)
            cycle_start_us = take_cycle(fuse_gradients(ready, self.fusion_mb * MIB))
            if stream.cores.slowdowns:
                ready_us = [stream.cores.time_of_progress(gradient.ready_us) for gradient in gradients]
        if profile.statistics_bytes:
            cycle_start_us = pass_cycles(max(stream.free_us, stream.cores.time_of_progress(profile.backward_us)))
            cycle_start_us = take_cycle([[Gradient("statistics", profile.statistics_bytes, cycle_start_us)]])
        slowed = stream.cores.slowed_profile()
        return SimulatedStep(slowed, ranks, tuple(stream.messages), tuple(negotiations), cycle_start_us)


def _fusion_copies_us(tensors: int, size_bytes: int, machine: Machine) -> tuple[float, float]:
    """The time to copy into the fusion buffer and out of it, and its CPU time; a single tensor is not copied.

    On a CPU the thread that copies has half of its core: the other half computes, or polls.
    """
    if tensors == 1:
        return 0.0, 0.0
    if machine.copy_gb_s is not None:
        cpu_us = 2 * size_bytes / (machine.copy_gb_s * 1e3)
        return 2 * cpu_us, cpu_us
    # both read and written
    return (0.0 if machine.device is None else 4 * size_bytes / (machine.device.memory_gb_s * 1e3)), 0.0
