"""Learning from the kept samples alone: a loss over them, and a backward pass that leaves the others out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

# below this share copying the other rows costs about what is saved
WORTHWHILE_SHARE = 0.1


def kept_loss(losses: Tensor, weights: Tensor) -> Tensor:
    """Σ wᵢ·lossᵢ / n over the samples with a weight, n counting all.

    A discarded loss is not multiplied by zero but left out: 0 · inf would be NaN. Its backward pass is only saved
    under `skip_zero_rows()`, since a batched graph runs all rows of a batch, zero or not.
    """
    kept = weights.nonzero().squeeze(1)
    return (losses[kept] * weights[kept]).sum() / len(losses)


class skip_zero_rows(TorchDispatchMode):
    """`with skip_zero_rows(): kept_loss(losses, weights).backward()` really skips the discarded samples.

    The gradient of a discarded sample is a row of zeros in every layer, and a convolution's or linear layer's
    backward pass over a zero row gives zero. The rows are found by looking, run without, and put back as zeros: the
    gradients are those of the plain backward pass up to rounding, for every model. Where a layer mixes samples
    (BatchNorm in training mode) there are no zero rows before it, and nothing is skipped or lost there.
    """

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        skipping = _SKIPPING.get(operation)
        return skipping(*args) if skipping else operation(*args, **(kwargs or {}))


def _convolution_backward(grad: Tensor, inputs: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
    rows = _nonzero_rows(grad)
    if rows is None:
        return aten.convolution_backward(grad, inputs, weight, *rest)
    grad_rows, *others = aten.convolution_backward(
        grad.index_select(0, rows), inputs.index_select(0, rows), weight, *rest
    )
    # zeros_like keeps the memory format, on which the speed of the layers before depends
    return None if grad_rows is None else torch.zeros_like(inputs).index_copy_(0, rows, grad_rows), *others


def _mm(left: Tensor, right: Tensor) -> Tensor:
    """A linear layer's two products: grad @ weight has zero rows on the left, gradᵀ @ inputs zero columns."""
    rows = _nonzero_rows(left)
    if rows is not None:
        product = aten.mm(left.index_select(0, rows), right)
        return product.new_zeros(len(left), product.shape[1]).index_copy_(0, rows, product)
    columns = _nonzero_rows(left.t())
    if columns is not None:
        return aten.mm(left.index_select(1, columns), right.index_select(0, columns))
    return aten.mm(left, right)


_SKIPPING: dict[Any, Callable[..., Any]] = {
    aten.convolution_backward.default: _convolution_backward,
    aten.mm.default: _mm,
}


def _nonzero_rows(tensor: Tensor) -> Tensor | None:
    """The rows with an entry other than zero (NaN is one); nothing where too few are zero to be worth it."""
    if not tensor.numel():
        return None
    flat = tensor.flatten(1)
    # a third of the time of any(1), which is not vectorised for floats
    rows = ((flat.amax(1) != 0) | (flat.amin(1) != 0)).nonzero().squeeze(1)
    return rows if len(rows) <= (1 - WORTHWHILE_SHARE) * len(tensor) else None
