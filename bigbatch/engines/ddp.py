"""PyTorch DDP under torchrun: gloo on CPU, NCCL on GPU; gradients are summed, once a global batch."""

import inspect
import os
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from pydantic import PositiveFloat
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bigbatch import parts
from bigbatch.errors import Problem

# torch renamed it and warns of the old name
_SYNC_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in inspect.signature(DistributedDataParallel).parameters
)


class Config(parts.Config):
    bucket_mb: PositiveFloat | None = None  # None: a quarter of the model, so that sending overlaps with backward
    # A stopped (not killed) rank is only noticed when this runs out.
    timeout_seconds: PositiveFloat = 300.0


class DDP:
    def __init__(self, config: Config) -> None:
        if "RANK" not in os.environ:
            raise Problem(
                "engine 'ddp' needs several ranks: add --ranks 2, or start with torchrun ... -m bigbatch train"
            )
        self.config = config
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        if torch.cuda.is_available():
            torch.cuda.set_device(local_rank)
            self.device = torch.device("cuda", local_rank)
        else:
            self.device = torch.device("cpu")
            local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // local_ranks))
        backend = "nccl" if self.device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=config.timeout_seconds))
        self.rank = dist.get_rank()
        self.ranks = dist.get_world_size()

    def wrap(self, model: nn.Module) -> nn.Module:
        model_mb = sum(p.numel() * p.element_size() for p in model.parameters()) / 2**20
        # BatchNorm's statistics are gathered by batchnorm.py
        no_buffers: dict[str, Any] = {_SYNC_BUFFERS: False}
        wrapped = DistributedDataParallel(
            model,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            bucket_cap_mb=self.config.bucket_mb or min(25.0, max(model_mb / 4, 0.05)),
            **no_buffers,
        )
        wrapped.register_comm_hook(None, _sum_bucket)
        return wrapped

    def accumulating(self, wrapped: nn.Module) -> AbstractContextManager[Any]:
        assert isinstance(wrapped, DistributedDataParallel)
        return wrapped.no_sync()

    def sum_gradients(self, model: nn.Module) -> None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        known = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32)
        somewhere = self.sum(known.to(self.device)).tolist()  # a tensor that no rank has used stays without a gradient
        gradients = []
        for parameter, ranks in zip(parameters, somewhere, strict=True):
            if ranks:
                if parameter.grad is None:  # this rank had no samples, but its word is awaited
                    parameter.grad = torch.zeros_like(parameter)
                gradients.append(parameter.grad)
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        for gradient, summed in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(summed.view_as(gradient))

    def sum(self, tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor)
        return tensor

    def broadcast(self, value: Any) -> Any:
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device if self.device.type == "cuda" else None)
        return box[0]

    def stop(self) -> None:
        dist.destroy_process_group()


# (annotations are read by torch here, which is why this file does not postpone them)
def _sum_bucket(state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """A sum, since DDP's mean over ranks is wrong for shards of unlike size; losses are divided by the global count."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])


def start(config: Config) -> DDP:
    return DDP(config)
