"""Horovod: every `cycle_ms` a thread asks all ranks which gradients are ready, fuses those, and sends them.

With the response cache the question is one all-reduce of a bit vector a cycle. Without it, or for tensors that are not
in it, every rank's requests are gathered at rank 0, which reads them one by one and broadcasts the answer. The cache
throws out what was used longest ago, so with more tensors than entries a step finds none of its tensors in it.
(horovod/common/controller.cc, operations.cc; version 0.28.)
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Sequence

from pydantic import BaseModel, ConfigDict, Field

from bigbatch.scaling.allreduce import costs
from bigbatch.scaling.machine import Machine
from bigbatch.scaling.profile import Gradient, Profile
from bigbatch.scaling.shared_cores import SharedCores
from bigbatch.scaling.step import Sent, Step

MIB = 2**20
_FIRST_STEPS = 4  # in which steps fall into step with the cycles: left out
_LEAST_STEPS = 8  # that are taken after those
_GATHER_AND_BROADCAST = 4  # collectives of an uncached cycle: sizes and requests to rank 0, size and responses back


class Config(BaseModel):
    """`request_us`: what rank 0 needs for one request of one rank; assumed, never measured here.

    An MB is 2^20 bytes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    cycle_ms: float = Field(1.0, gt=0)
    fusion_mb: float = Field(128.0, ge=0)
    cache_capacity: int = Field(1024, ge=0)  # 0: no response cache, as before version 0.16.2
    request_us: float = Field(1.0, ge=0)


def fused(gradients: list[Gradient], limit_bytes: float) -> list[list[Gradient]]:
    """Tensors in order, each joining the buffer before it unless that would pass the limit."""
    found: list[list[Gradient]] = []
    filled = 0
    for gradient in gradients:
        if found and filled + gradient.bytes <= limit_bytes:
            found[-1].append(gradient)
            filled += gradient.bytes
        else:
            found.append([gradient])
            filled = gradient.bytes
    return found


def negotiation_us(requests: int, cached: bool, config: Config, machine: Machine, ranks: int) -> float:
    """What one cycle's question costs."""
    collective_us = math.ceil(math.log2(ranks)) * machine.control_us
    if cached:
        return collective_us
    return _GATHER_AND_BROADCAST * collective_us + ranks * requests * config.request_us


def idle_cycle_us(
    config: Config, machine: Machine, ranks: int, *, cached: bool = True, free: Collection[str] = ()
) -> float:
    """From one cycle to the next while there is nothing to send."""
    asks = float("negotiation" not in free)
    return max(config.cycle_ms * 1e3, asks * negotiation_us(0, cached, config, machine, ranks))


def simulate_steps(
    profile: Profile,
    factors: Sequence[float],
    config: Config,
    machine: Machine,
    ranks: int,
    *,
    free: Collection[str] = (),
) -> list[Step]:
    """Steps whose mean is the expected one: `factors` times as long, one after the other as they fall.

    A step that ends with a cycle's last message begins the next one there, so that steps fall into step with cycles
    that are long beside the jitter.
    """
    found: list[Step] = []
    first_cycle_us = profile.forward_us
    counted = len(factors) * math.ceil(_LEAST_STEPS / len(factors))  # each factor as often as the others
    for number in range(-_FIRST_STEPS, counted):
        slowed = profile.slowed(factors[number % len(factors)])
        step = simulate_step(slowed, config, machine, ranks, free=free, first_cycle_us=first_cycle_us)
        first_cycle_us = step.profile.forward_us + step.next_cycle_us - step.step_us
        found.append(step)
    return found[_FIRST_STEPS:]


def simulate_step(
    profile: Profile,
    config: Config,
    machine: Machine,
    ranks: int,
    *,
    free: Collection[str] = (),
    first_cycle_us: float | None = None,
) -> Step:
    """One step of `ranks` ranks, all as fast as `profile` says.

    A cycle begins `first_cycle_us` after the step does; None: with the backward pass.
    """
    if ranks == 1:
        return Step(profile, ranks)
    cost = costs(ranks, machine, free, engine="horovod")
    busy_cost = costs(ranks, machine, free, engine="horovod", kind="busy_points")
    cpu_cost = costs(ranks, machine, free, engine="horovod", kind="cpu_points")
    cached = sum(len(layer.gradient_bytes) for layer in profile.layers) <= config.cache_capacity
    cycle_us = config.cycle_ms * 1e3
    pause_us = idle_cycle_us(config, machine, ranks, cached=cached, free=free)
    asks = float("negotiation" not in free)
    # cycles go on whether there is anything to send or not
    profile = profile.slowed(1 / (1 - min(0.9, machine.cycle_cost_us / pause_us)))
    gradients = profile.gradients()
    cores = SharedCores(profile)
    ready_us = [gradient.ready_us for gradient in gradients]
    sent: list[Sent] = []
    negotiations: list[tuple[float, float]] = []
    cycle_start_us = 0.0 if first_cycle_us is None else first_cycle_us - profile.forward_us
    stream_free_us = 0.0
    done = 0
    while done < len(gradients):
        # cycles that find nothing cost nobody anything but their own time
        cycle_start_us += pause_us * max(0, math.ceil((ready_us[done] - cycle_start_us) / pause_us))
        ready = gradients[done : bisect_right(ready_us, cycle_start_us)]
        done += len(ready)
        agreed_us = cycle_start_us + asks * negotiation_us(len(ready), cached, config, machine, ranks)
        negotiations.append((cycle_start_us, agreed_us))
        for buffer in fused(ready, config.fusion_mb * MIB):
            size = sum(gradient.bytes for gradient in buffer)
            one = cost(size)
            start_us = max(agreed_us, stream_free_us)
            copies_us, copies_cpu_us = _copies_us(len(buffer), size, machine)
            stream_free_us = cores.send(
                start_us, one.us + copies_us, busy_cost(size).us + copies_us, cpu_cost(size).us + copies_cpu_us
            )
            sent.append(Sent(start_us, stream_free_us, size, one.how))
        if cores.slowed:
            ready_us = [cores.when(gradient.ready_us) for gradient in gradients]
        busy_until_us = stream_free_us if machine.blocking else agreed_us
        cycle_start_us = max(cycle_start_us + cycle_us, busy_until_us)
    if profile.statistics_bytes:
        summed_us = max(stream_free_us, cores.when(profile.backward_us))
        cycle_start_us += pause_us * max(0, math.ceil((summed_us - cycle_start_us) / pause_us))
        agreed_us = cycle_start_us + asks * negotiation_us(1, cached, config, machine, ranks)
        negotiations.append((cycle_start_us, agreed_us))
        one = cost(profile.statistics_bytes)
        sent.append(Sent(agreed_us, agreed_us + one.us, profile.statistics_bytes, one.how))
        cycle_start_us = max(cycle_start_us + cycle_us, agreed_us + one.us if machine.blocking else agreed_us)
    return Step(cores.stretched(), ranks, tuple(sent), tuple(negotiations), cycle_start_us)


def _copies_us(tensors: int, size_bytes: int, machine: Machine) -> tuple[float, float]:
    """Into the fusion buffer and out of it, and the CPU time of that; one tensor alone is sent from where it is.

    On a processor the thread that copies has half of its core: the other one computes, or waits at full speed.
    """
    if tensors == 1:
        return 0.0, 0.0
    if machine.copy_gb_s is not None:
        cpu_us = 2 * size_bytes / (machine.copy_gb_s * 1e3)
        return 2 * cpu_us, cpu_us
    # both read and written
    return (0.0 if machine.device is None else 4 * size_bytes / (machine.device.memory_gb_s * 1e3)), 0.0
