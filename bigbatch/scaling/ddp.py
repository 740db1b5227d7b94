"""PyTorch's DistributedDataParallel: static buckets in the order of the backward pass, sent in order when full.

From the second step on, buckets follow the order in which gradients arrived in the first. A bucket is closed by the
tensor that brings it to its limit: 1 MiB for the first, so that sending begins early, 25 MiB for the others. A limit
of one's own holds for the first too. (Li et al. 2020, section 3.2.3; torch/csrc/distributed/c10d/reducer.cpp,
torch/nn/parallel/distributed.py.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from pydantic import BaseModel, ConfigDict, Field

from bigbatch.scaling.allreduce import costs
from bigbatch.scaling.machine import Machine
from bigbatch.scaling.profile import Profile
from bigbatch.scaling.shared_cores import SharedCores
from bigbatch.scaling.step import Sent, Step

MIB = 2**20
_TORCHS_MB, _TORCHS_FIRST_MB = 25.0, 1.0


class Config(BaseModel):
    """An MB is 2^20 bytes, as torch counts them."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    bucket_mb: float = Field(_TORCHS_MB, gt=0)
    first_bucket_mb: float | None = Field(None, gt=0)  # None: torch's choice

    @property
    def limits_bytes(self) -> tuple[float, float]:
        """Of the first bucket, and of the others."""
        torchs_mb = _TORCHS_FIRST_MB if self.bucket_mb == _TORCHS_MB else self.bucket_mb
        return (self.first_bucket_mb or torchs_mb) * MIB, self.bucket_mb * MIB


def buckets(sizes: Iterable[int], first_limit_bytes: float, limit_bytes: float) -> list[list[int]]:
    """The tensors of each bucket, by their place in the order of arrival."""
    found: list[list[int]] = []
    current: list[int] = []
    filled = 0
    for index, size in enumerate(sizes):
        current.append(index)
        filled += size
        if filled >= (limit_bytes if found else first_limit_bytes):
            found.append(current)
            current, filled = [], 0
    return [*found, current] if current else found


def simulate_steps(
    profile: Profile,
    factors: Sequence[float],
    config: Config,
    machine: Machine,
    ranks: int,
    *,
    free: Collection[str] = (),
) -> list[Step]:
    """Steps whose mean is the expected one: `factors` times as long."""
    return [simulate_step(profile.slowed(factor), config, machine, ranks, free=free) for factor in factors]


def simulate_step(
    profile: Profile, config: Config, machine: Machine, ranks: int, *, free: Collection[str] = ()
) -> Step:
    """One step of `ranks` ranks, all as fast as `profile` says."""
    if ranks == 1:
        return Step(profile, ranks)
    profile = profile.copying(machine.copy_gb_s)  # into its bucket: gradients are made anew in every step
    gradients = profile.gradients()
    cost = costs(ranks, machine, free)
    busy_cost = costs(ranks, machine, free, kind="busy_points")
    cpu_cost = costs(ranks, machine, free, kind="cpu_points")
    cores = SharedCores(profile)
    sent: list[Sent] = []
    stream_free_us = launched_us = 0.0
    for bucket in buckets((gradient.bytes for gradient in gradients), *config.limits_bytes):
        # in order: a bucket that is full waits for the ones before it
        launched_us = max(launched_us, *(cores.when(gradients[index].ready_us) for index in bucket))
        size = sum(gradients[index].bytes for index in bucket)
        one = cost(size)
        start_us = max(launched_us, stream_free_us)
        stream_free_us = cores.send(start_us, one.us, busy_cost(size).us, cpu_cost(size).us)
        sent.append(Sent(start_us, stream_free_us, size, one.how))
    if profile.statistics_bytes:
        start_us = max(stream_free_us, cores.when(profile.backward_us))
        one = cost(profile.statistics_bytes)
        sent.append(Sent(start_us, start_us + one.us, profile.statistics_bytes, one.how))
    return Step(cores.stretched(), ranks, tuple(sent))
