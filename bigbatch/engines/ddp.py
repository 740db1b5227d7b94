"""PyTorch DDP under torchrun: gloo on CPU, NCCL on GPU; gradients are summed, once a global batch."""

import inspect
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bigbatch import parts
from bigbatch.engines import _compression
from bigbatch.engines._ranks import Ranks
from bigbatch.engines._replicas import Replicas
from bigbatch.errors import Problem

# torch renamed it and warns of the old name
_SYNC_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in inspect.signature(DistributedDataParallel).parameters
)


class Config(parts.Config):
    # Gradients travel in half of the bits (fp16, bf16), or as factors of rank `powersgd_rank` (Vogels et al. 2019)
    # with the error of a step added to the next one: the sum over ranks is no longer exact.
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    powersgd_rank: PositiveInt = 2
    static_graph: bool = False  # DDP need not look for unused tensors; each rank's share has to be one micro-batch
    bucket_mb: PositiveFloat | None = None  # None: a quarter of the model, so that sending overlaps with backward
    # A stopped (not killed) rank is only noticed when this runs out.
    timeout_seconds: PositiveFloat = 300.0


class DDP(Ranks, Replicas):
    def __init__(self, config: Config) -> None:
        super().__init__("ddp", config.timeout_seconds)
        self.config = config

    def wrap(self, model: nn.Module) -> nn.Module:
        wrapped = replicated(model, self.config, self.device)
        _compression.register(wrapped, self.config.compression, self.config.powersgd_rank)
        return wrapped

    def no_sync(self, wrapped: nn.Module) -> AbstractContextManager[Any]:
        assert isinstance(wrapped, DistributedDataParallel)
        if self.config.static_graph:
            raise Problem(
                "engine.static_graph needs every rank's share in one micro-batch, as torch counts backward passes: "
                "set micro_batch to global_batch / ranks, or leave it out"
            )
        return wrapped.no_sync()


def replicated(model: nn.Module, config: Config, device: torch.device) -> DistributedDataParallel:
    """Buckets without the hook that sums them."""
    model_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    # BatchNorm's statistics are gathered by batchnorm.py
    no_buffers: dict[str, Any] = {_SYNC_BUFFERS: False}
    return DistributedDataParallel(
        model,
        device_ids=[device] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        bucket_cap_mb=config.bucket_mb or own_bucket_mb(model_bytes),
        static_graph=config.static_graph,
        **no_buffers,
    )


def own_bucket_mb(model_bytes: int) -> float:
    """A quarter of the model, within reason."""
    return min(25.0, max(model_bytes / 2**20 / 4, 0.05))


def start(config: Config) -> DDP:
    return DDP(config)
