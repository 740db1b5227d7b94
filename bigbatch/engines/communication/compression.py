"""How DDP sums its buckets over ranks: as they are, or in fewer bits.

They are summed, because DDP's mean over ranks is wrong for shards of different sizes: losses are divided by the global
count. torch's own compression hooks divide by the world size.

(torch reads the annotations of these functions, so this file does not postpone them.)
"""

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket  # torch.distributed does not export it to type checkers
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from bigbatch.errors import Problem

FutureTensor = torch.futures.Future[Tensor]


def register_sum_hook(wrapped: DistributedDataParallel, compression: str, powersgd_rank: int) -> None:
    """Let DDP sum gradients over ranks, compressed as a config says."""
    if compression == "bf16" and dist.get_backend() == "gloo":
        raise Problem("gloo, which sums on CPUs, does not support compression bf16: use --set engine.compression=fp16")
    if compression == "none":
        wrapped.register_comm_hook(None, _sum_bucket)
    elif compression == "powersgd":
        state = PowerSGDState(None, matrix_approximation_rank=powersgd_rank, start_powerSGD_iter=2)
        wrapped.register_comm_hook(state, _sum_by_powersgd)
    else:
        wrapped.register_comm_hook(torch.float16 if compression == "fp16" else torch.bfloat16, _sum_in_dtype)


def _sum_bucket(state: None, bucket: GradBucket) -> FutureTensor:
    return _start_all_reduce(bucket.buffer()).then(lambda done: done.value()[0])


def _sum_in_dtype(dtype: torch.dtype, bucket: GradBucket) -> FutureTensor:
    buffer = bucket.buffer()
    return _start_all_reduce(buffer.to(dtype)).then(lambda done: buffer.copy_(done.value()[0]))


def _sum_by_powersgd(state: PowerSGDState, bucket: GradBucket) -> FutureTensor:
    return powerSGD_hook(state, bucket).then(lambda done: done.value().mul_(dist.get_world_size()))


def _start_all_reduce(tensor: Tensor) -> torch.futures.Future[list[Tensor]]:
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    future: torch.futures.Future[list[Tensor]] = work.get_future()
    return future
