"""Zero the share of each tensor's gradient entries that are smallest in size (Gao & Zhong 2020, section 3)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from pydantic import Field
from torch import Tensor

from bigbatch import parts
from bigbatch.position import Position
from bigbatch.selectors._discard import discard_count

WEIGHS_SAMPLES = False


class Config(parts.Config):
    """The share of entries, tensor by tensor. The paper tried this and gives no number."""

    discard: float = Field(ge=0, lt=1)


def weights(losses: Tensor, config: Config, position: Position) -> Tensor:
    """Every sample counts: entries of the gradient are discarded, not samples."""
    return torch.ones_like(losses, requires_grad=False)


def edit_gradients(parameters: Iterable[Tensor], config: Config) -> None:
    """Change the gradients in place, after they were added up over micro-batches and ranks and before the optimizer.

    Earlier, each rank would discard other entries and the sum would have them all again.
    """
    small_gradient((p.grad for p in parameters if p.grad is not None), config.discard)


@torch.no_grad()
def small_gradient(gradients: Iterable[Tensor], discard: float) -> None:
    """Set the ⌊discard·n⌋ entries of smallest size of each tensor of n entries to zero, in place.

    Among equal sizes the first go. NaN counts as large.
    """
    for gradient in gradients:
        count = discard_count(discard, gradient.numel())
        if count:
            gradient.masked_fill_(_smallest(gradient.abs().flatten(), count).view_as(gradient), 0.0)


def _smallest(sizes: Tensor, count: int) -> Tensor:
    """A mask of exactly `count`; selection, since a sort of millions of entries takes longer than the step."""
    threshold = sizes.kthvalue(count).values
    below, level = sizes < threshold, sizes == threshold
    return below | (level & (level.cumsum(0) <= count - below.sum()))
