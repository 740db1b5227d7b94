"""Zero the fraction of each tensor's gradient entries that are smallest in size (Gao & Zhong 2020, section 3)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from pydantic import Field
from torch import Tensor

from bigbatch import parts
from bigbatch.position import Position
from bigbatch.selectors.discarding import discard_count


class Config(parts.Config):
    """The fraction of entries, per tensor. The paper tried this and gives no number."""

    weights_samples = False
    edits_gradients = True
    discard: float = Field(ge=0, lt=1)


def weights(losses: Tensor, config: Config, position: Position) -> Tensor:
    """Return 1 for each sample: entries of the gradient are discarded, not samples."""
    return torch.ones_like(losses, requires_grad=False)


def edit_gradients(parameters: Iterable[Tensor], config: Config) -> None:
    """Change the gradients in place, after they were added up over micro-batches and ranks and before the optimizer.

    Earlier, each rank would discard different entries, and the sum would have all of them.
    """
    small_gradient((p.grad for p in parameters if p.grad is not None), config.discard)


@torch.no_grad()
def small_gradient(gradients: Iterable[Tensor], discard: float) -> None:
    """Set the ⌊discard·n⌋ entries of smallest size of each tensor of n entries to zero, in place.

    Of equal sizes the first are zeroed. NaN counts as large.
    """
    for gradient in gradients:
        count = discard_count(discard, gradient.numel())
        if count:
            gradient.masked_fill_(_mask_smallest(gradient.abs().flatten(), count).view_as(gradient), 0.0)


def _mask_smallest(sizes: Tensor, count: int) -> Tensor:
    """Return a mask of exactly `count` entries. A sort of millions of entries would take longer than the step."""
    threshold = sizes.kthvalue(count).values
    below, level = sizes < threshold, sizes == threshold
    return below | (level & (level.cumsum(0) <= count - below.sum()))
