"""What the engines on torch's process groups share: joining the group, sums and broadcasts, leaving it."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bigbatch.engines import env_local_world_size
from bigbatch.errors import Problem


def assign_device(local_rank: int) -> torch.device:
    """Return this rank's GPU, or the CPU with this rank's fraction of the machine's cores as threads."""
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // env_local_world_size()))
    return torch.device("cpu")


class ProcessGroupEngine:
    """One rank of a group that torchrun started: gloo on CPU, NCCL on GPU."""

    def __init__(self, engine: str, timeout_seconds: float) -> None:
        if "RANK" not in os.environ:
            raise Problem(
                f"engine '{engine}' needs several ranks: add --ranks 2, or start with torchrun ... -m bigbatch train"
            )
        self.device = assign_device(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "nccl" if self.device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout_seconds))
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()

    def sum(self, tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor)
        return tensor

    def broadcast(self, value: Any) -> Any:
        values = [value]
        dist.broadcast_object_list(values, src=0, device=self.device if self.device.type == "cuda" else None)
        return values[0]

    def stop(self) -> None:
        dist.destroy_process_group()
