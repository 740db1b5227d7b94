"""A filter on several ranks: features are divided among them, the rest is computed on rank 0 and broadcast."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from bigbatch.errors import Problem

_SECONDS_BETWEEN_HEARTBEATS = 20.0  # well below the timeout of a process group

T = TypeVar("T")


def is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def rank() -> int:
    return dist.get_rank() if is_distributed() else 0


def world_size() -> int:
    return dist.get_world_size() if is_distributed() else 1


def device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def max_over_ranks(value: int) -> int:
    """Return the largest value of any rank. It is a barrier too."""
    if not is_distributed():
        return value
    box = torch.tensor([value], dtype=torch.int64, device=device())
    dist.all_reduce(box, dist.ReduceOp.MAX)
    return int(box)


def compute_on_rank_zero(compute: Callable[[], T]) -> T:
    """Compute on rank 0 and return the result, or raise its Problem, on every rank.

    A map of a million points takes an hour, longer than the timeout of a process group: rank 0 computes in a thread
    and broadcasts heartbeats meanwhile.
    """
    if not is_distributed():
        return compute()
    outcome: list[Any] = [None, None]  # a value or an error
    worker: threading.Thread | None = None
    if rank() == 0:
        context = copy_context()

        def work() -> None:
            try:
                outcome[0] = context.run(compute)
            except BaseException as error:
                outcome[1] = error

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
    while True:
        if worker:
            worker.join(_SECONDS_BETWEEN_HEARTBEATS)
        if _broadcast(worker is not None and not worker.is_alive()):
            break
    failure = _broadcast(None if outcome[1] is None else str(outcome[1]))
    if failure is not None:
        raise outcome[1] if outcome[1] is not None else Problem(failure)
    value: T = _broadcast(outcome[0])
    return value


def _broadcast(value: Any) -> Any:
    """Return rank 0's value on every rank."""
    box = [value]
    dist.broadcast_object_list(box, src=0, device=device() if device().type == "cuda" else None)
    return box[0]
