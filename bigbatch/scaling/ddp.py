"""PyTorch's DistributedDataParallel: static buckets in the order of the backward pass, sent in order when full.

From the second step on, buckets follow the order in which gradients arrived in the first. A bucket is closed by the
tensor that brings it to its limit: 1 MiB for the first, so that communication begins early, 25 MiB for the others. A
user's own limit holds for the first too. (Li et al. 2020, section 3.2.3; torch/csrc/distributed/c10d/reducer.cpp,
torch/nn/parallel/distributed.py.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import ClassVar

from pydantic import Field

from bigbatch.scaling.allreduce import AllReduceCosts
from bigbatch.scaling.machine import Machine
from bigbatch.scaling.profile import Profile
from bigbatch.scaling.step import CommunicationStream, SimulatedEngine, SimulatedStep

MIB = 2**20
_TORCHS_MB, _TORCHS_FIRST_MB = 25.0, 1.0


def assign_buckets(sizes: Iterable[int], first_limit_bytes: float, limit_bytes: float) -> list[list[int]]:
    """Return the tensors of each bucket, as indices in the order of arrival."""
    buckets: list[list[int]] = []
    current: list[int] = []
    filled = 0
    for index, size in enumerate(sizes):
        current.append(index)
        filled += size
        if filled >= (limit_bytes if buckets else first_limit_bytes):
            buckets.append(current)
            current, filled = [], 0
    return [*buckets, current] if current else buckets


class SimulatedDDP(SimulatedEngine):
    """An MB is 2^20 bytes, as in torch."""

    name: ClassVar[str] = "ddp"
    bucket_mb: float = Field(_TORCHS_MB, gt=0)
    first_bucket_mb: float | None = Field(None, gt=0)  # None: torch's choice

    @property
    def bucket_limits_bytes(self) -> tuple[float, float]:
        """Of the first bucket, and of the others."""
        torchs_mb = _TORCHS_FIRST_MB if self.bucket_mb == _TORCHS_MB else self.bucket_mb
        return (self.first_bucket_mb or torchs_mb) * MIB, self.bucket_mb * MIB

    def simulate_step(
        self, profile: Profile, machine: Machine, ranks: int, *, zero_cost: Collection[str] = ()
    ) -> SimulatedStep:
        if ranks == 1:
            return SimulatedStep(profile, ranks)
        # into the bucket: gradients are new tensors in each step
        profile = profile.add_gradient_copies(machine.copy_gb_s)
        gradients = profile.gradients()
        stream = CommunicationStream(profile, AllReduceCosts(ranks, machine, self.name, zero_cost))
        progress = stream.cores.time_of_progress
        launched_us = 0.0
        for bucket in assign_buckets((gradient.bytes for gradient in gradients), *self.bucket_limits_bytes):
            # in order: a full bucket waits for the ones before it
            launched_us = max(launched_us, *(progress(gradients[index].ready_us) for index in bucket))
            stream.send(launched_us, sum(gradients[index].bytes for index in bucket))
        if profile.statistics_bytes:
            stream.send(progress(profile.backward_us), profile.statistics_bytes)
        return SimulatedStep(stream.cores.slowed_profile(), ranks, tuple(stream.messages))
