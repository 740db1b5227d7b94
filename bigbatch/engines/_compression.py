"""How DDP's buckets are summed over ranks: as they are, or in fewer bits.

Sums, since DDP's mean over ranks is wrong for shards of unlike size: losses are divided by the global count. torch's
own compression hooks divide by the number of ranks.

(torch reads these functions' annotations, which is why this file does not postpone them.)
"""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from bigbatch.errors import Problem

Summed = torch.futures.Future[Tensor]


def register(wrapped: DistributedDataParallel, compression: str, powersgd_rank: int) -> None:
    if compression == "bf16" and dist.get_backend() == "gloo":
        raise Problem("compression bf16 is not known to gloo, which sums on CPUs: use --set engine.compression=fp16")
    if compression == "none":
        wrapped.register_comm_hook(None, _sum)
    elif compression == "powersgd":
        state = PowerSGDState(None, matrix_approximation_rank=powersgd_rank, start_powerSGD_iter=2)
        wrapped.register_comm_hook(state, _powersgd)
    else:
        wrapped.register_comm_hook(torch.float16 if compression == "fp16" else torch.bfloat16, _sum_in)


def _sum(state: None, bucket: dist.GradBucket) -> Summed:
    return _sent(bucket.buffer()).then(lambda done: done.value()[0])


def _sum_in(dtype: torch.dtype, bucket: dist.GradBucket) -> Summed:
    buffer = bucket.buffer()
    return _sent(buffer.to(dtype)).then(lambda done: buffer.copy_(done.value()[0]))


def _powersgd(state: PowerSGDState, bucket: dist.GradBucket) -> Summed:
    return powerSGD_hook(state, bucket).then(lambda done: done.value().mul_(dist.get_world_size()))


def _sent(tensor: Tensor) -> torch.futures.Future[list[Tensor]]:
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    return work.get_future()
