"""Samples that worker processes import by name."""

from __future__ import annotations

import os
import signal

import torch
from torch import Tensor

from bigbatch.datasets.reading.prefetch import FetchRequest
from bigbatch.errors import Problem


class Numbers:
    """Sample i is the number i; some numbers do harm."""

    sequential = False
    labels = torch.arange(1000)

    def __init__(self, lazy: bool = True) -> None:
        self.lazy = lazy
        self.fetched: list[list[int]] = []

    def __len__(self) -> int:
        return 1000

    def fetch(self, indices: Tensor, *, seed: int = 0, epoch: int | None = None) -> tuple[Tensor, Tensor]:
        self.fetched.append(indices.tolist())
        if 666 in indices:
            raise ValueError("the number of the beast")
        if 667 in indices:
            raise Problem("sample 667 is broken: replace it")
        if 668 in indices:
            os.kill(os.getpid(), signal.SIGKILL)
        if 669 in indices:
            os._exit(3)
        return indices.float()[:, None] + (epoch or 0) * 1000, indices


def numbers(begin: int, end: int, epoch: int | None = None) -> FetchRequest:
    return FetchRequest.of(torch.arange(begin, end), epoch=epoch)
