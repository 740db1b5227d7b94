"""Norms of tensors as Python numbers, with half precision accumulated in float32."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to sum in: squares of float16 numbers overflow at 256."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def norm(tensor: Tensor, order: int = 2) -> float:
    """Return the norm of one tensor."""
    dtype = tensor.dtype
    if dtype is torch.float16 or dtype is torch.bfloat16:  # spelled out: a call per layer is counted in the step's time
        return float(torch.linalg.vector_norm(tensor, order, dtype=torch.float32).item())
    return float(torch.linalg.vector_norm(tensor, order).item())


def stacked_norms(stack: Tensor, order: int = 2) -> list[float]:
    """Return the norm of each tensor in a stack."""
    rows = stack.reshape(len(stack), -1)  # flatten(1) refuses a stack of scalars
    norms: list[float] = torch.linalg.vector_norm(rows, order, dim=1, dtype=accumulation_dtype(stack.dtype)).tolist()
    return norms


def foreach_norms(tensors: Sequence[Tensor], order: int = 2) -> list[float]:
    """Return the norm of each tensor, read back from the device once per dtype."""
    norms = [0.0] * len(tensors)
    indices_by_kind: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for index, tensor in enumerate(tensors):
        indices_by_kind.setdefault((tensor.dtype, tensor.device), []).append(index)
    for (dtype, _), indices in indices_by_kind.items():
        found = torch._foreach_norm([tensors[index] for index in indices], order, dtype=accumulation_dtype(dtype))
        for index, value in zip(indices, torch.stack(found).tolist(), strict=True):
            norms[index] = value
    return norms
