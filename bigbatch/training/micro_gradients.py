"""The squared norm of each micro-batch's own gradient, for the gradient noise scale."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn


class MicroGradients:
    """Squared norms of each micro-batch's mean gradient, per tensor, taken before it is added to the sum."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.counts: list[int] = []
        self.squared_norms: list[Tensor] = []  # [tensors] each

    @contextmanager
    def record(self, count: int, batch_count: int) -> Iterator[None]:
        """Around the backward pass of `count` samples whose losses are divided by `batch_count`."""
        before = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        yield
        norms = torch.zeros(len(self.parameters), dtype=torch.float64, device=self.parameters[0].device)
        used = [number for number, parameter in enumerate(self.parameters) if parameter.grad is not None]
        own = [cast(Tensor, self.parameters[number].grad) for number in used]
        norms[used] = torch.stack(torch._foreach_norm(own, dtype=torch.float64))
        self.counts.append(count)
        self.squared_norms.append(norms.square() * (batch_count / count) ** 2)
        for parameter, sum_before in zip(self.parameters, before, strict=True):
            if sum_before is not None:  # added to in place, as a backward pass would have
                parameter.grad = sum_before if parameter.grad is None else sum_before.add_(parameter.grad)
