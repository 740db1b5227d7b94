"""The loss of the kept samples, and a backward pass that skips the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

# below this fraction of zero rows, copying the others costs about what is saved
MIN_SKIPPED_FRACTION = 0.1


def kept_loss(losses: Tensor, weights: Tensor) -> Tensor:
    """Return Σ wᵢ·lossᵢ / n over the samples with a weight, n counting all.

    A discarded loss is not multiplied by zero but left out: 0 · inf would be NaN. Its backward pass is skipped only
    under `skip_zero_rows()`: a batched graph runs all rows of a batch, zero or not.
    """
    kept = weights.nonzero().squeeze(1)
    return (losses[kept] * weights[kept]).sum() / len(losses)


class skip_zero_rows(TorchDispatchMode):
    """`with skip_zero_rows(): kept_loss(losses, weights).backward()` really skips the discarded samples.

    The gradient of a discarded sample is a row of zeros in every layer, and a convolution's or linear layer's
    backward pass over a zero row gives zero. Such rows are detected, left out, and put back as zeros: the gradients
    are those of the plain backward pass up to rounding, for every model. Where a layer mixes samples
    (BatchNorm in training mode) there are no zero rows before it, and nothing is skipped or lost there.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        replacement = _REPLACEMENTS.get(operation)
        return replacement(*args) if replacement else operation(*args, **(kwargs or {}))


def _sparse_convolution_backward(grad: Tensor, inputs: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
    rows = _nonzero_rows(grad)
    if rows is None:
        gradients: tuple[Tensor | None, ...] = aten.convolution_backward(grad, inputs, weight, *rest)
        return gradients
    grad_rows, *others = aten.convolution_backward(
        grad.index_select(0, rows), inputs.index_select(0, rows), weight, *rest
    )
    # zeros_like keeps the memory format, which the speed of the layers before depends on
    return None if grad_rows is None else torch.zeros_like(inputs).index_copy_(0, rows, grad_rows), *others


def _sparse_mm(left: Tensor, right: Tensor) -> Tensor:
    """A linear layer's two products: grad @ weight has zero rows on the left, gradᵀ @ inputs zero columns."""
    rows = _nonzero_rows(left)
    if rows is not None:
        product: Tensor = aten.mm(left.index_select(0, rows), right)
        return product.new_zeros(len(left), product.shape[1]).index_copy_(0, rows, product)
    columns = _nonzero_rows(left.t())
    if columns is not None:
        left, right = left.index_select(1, columns), right.index_select(0, columns)
    product = aten.mm(left, right)
    return product


_REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    aten.convolution_backward.default: _sparse_convolution_backward,
    aten.mm.default: _sparse_mm,
}


def _nonzero_rows(tensor: Tensor) -> Tensor | None:
    """Return the rows with a nonzero entry (NaN is one), or None where too few rows are zero."""
    if not tensor.numel():
        return None
    flat = tensor.flatten(1)
    # a third of the time of any(1), which is not vectorised for floats
    rows = ((flat.amax(1) != 0) | (flat.amin(1) != 0)).nonzero().squeeze(1)
    return rows if len(rows) <= (1 - MIN_SKIPPED_FRACTION) * len(tensor) else None
