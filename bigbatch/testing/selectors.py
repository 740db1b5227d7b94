"""The contract of a selector: `weights(losses, config, position) -> Tensor`, one weight per sample."""

from __future__ import annotations

import torch
from torch import Tensor

from bigbatch import selectors
from bigbatch.position import Position
from bigbatch.testing.common import CheckedPart


def check_weights_are_finite_and_detached(part: CheckedPart) -> None:
    for epochs in (0.0, 9.99):
        for dtype in (torch.float32, torch.float64):
            weights = selectors.weights(_losses().to(dtype), part.configure(), _at(epochs))
            assert (weights.shape, weights.dtype, weights.requires_grad) == ((50,), dtype, False)
            assert bool((weights.isfinite() & (part.configure().is_random | (weights >= 0))).all())
            assert weights.count_nonzero() > 0, "no sample is left"


def check_weights_are_repeatable(part: CheckedPart) -> None:
    losses = _losses()
    first = selectors.weights(losses, part.configure(), _at(1))
    assert first.equal(selectors.weights(losses, part.configure(), _at(1)))
    assert losses.equal(_losses()), "the losses were changed"


def check_order_does_not_matter(part: CheckedPart) -> None:
    if part.configure().is_random:
        return
    losses, order = _losses(), torch.randperm(50, generator=torch.Generator().manual_seed(1))
    weights = selectors.weights(losses, part.configure(), _at(1))
    assert selectors.weights(losses[order], part.configure(), _at(1)).equal(weights[order])


def check_nan_is_kept(part: CheckedPart) -> None:
    """Or a diverged training would go unnoticed."""
    losses = _losses().detach()
    losses[7] = float("nan")
    assert selectors.weights(losses, part.configure(), _at(1))[7] != 0


def _losses() -> Tensor:
    return torch.rand(50, generator=torch.Generator().manual_seed(0), requires_grad=True)


def _at(epochs: float) -> Position:
    return Position(epochs=epochs, total_epochs=10, global_batch=50)
