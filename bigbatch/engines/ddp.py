"""PyTorch DDP under torchrun: gloo on CPU, NCCL on GPU; gradients are summed once per global batch."""

import inspect
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bigbatch import parts
from bigbatch.engines.communication.compression import register_sum_hook
from bigbatch.engines.communication.process_group import ProcessGroupEngine
from bigbatch.engines.communication.replicas import ReplicatedModelEngine
from bigbatch.errors import Problem

# newer versions of torch warn about the old name
_SYNC_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in inspect.signature(DistributedDataParallel).parameters
)


class Config(parts.Config):
    # Gradients are sent in half of the bits (fp16, bf16), or as factors of rank `powersgd_rank` (Vogels et al. 2019)
    # whose error is added to the next step: the sum over ranks is no longer exact.
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    powersgd_rank: PositiveInt = 2
    static_graph: bool = False  # DDP does not look for unused parameters; each rank must have one micro-batch
    bucket_mb: PositiveFloat | None = None  # None: a quarter of the model, so that communication overlaps with backward
    # A stopped (not killed) rank is only noticed when this runs out.
    timeout_seconds: PositiveFloat = 300.0


class DDP(ProcessGroupEngine, ReplicatedModelEngine):
    def __init__(self, config: Config) -> None:
        super().__init__("ddp", config.timeout_seconds)
        self.config = config

    def wrap(self, model: nn.Module) -> nn.Module:
        wrapped = wrap_in_ddp(model, self.config, self.device)
        register_sum_hook(wrapped, self.config.compression, self.config.powersgd_rank)
        return wrapped

    def no_sync(self, wrapped: nn.Module) -> AbstractContextManager[Any]:
        assert isinstance(wrapped, DistributedDataParallel)
        if self.config.static_graph:
            raise Problem(
                "engine.static_graph needs one micro-batch per rank, because torch counts backward passes: "
                "set micro_batch to global_batch / ranks, or do not set it"
            )
        return wrapped.no_sync()


def wrap_in_ddp(model: nn.Module, config: Config, device: torch.device) -> DistributedDataParallel:
    """Return the model in DDP with its buckets, before a hook that sums them is registered."""
    model_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    # training.batchnorm sums the statistics of BatchNorm
    no_buffers: dict[str, Any] = {_SYNC_BUFFERS: False}
    return DistributedDataParallel(
        model,
        device_ids=[device] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        bucket_cap_mb=config.bucket_mb or default_bucket_mb(model_bytes),
        static_graph=config.static_graph,
        **no_buffers,
    )


def default_bucket_mb(model_bytes: int) -> float:
    """Return the size of a bucket: a quarter of the model, at least 0.05 MB and at most 25 MB."""
    return min(25.0, max(model_bytes / 2**20 / 4, 0.05))


def start(config: Config) -> DDP:
    return DDP(config)
