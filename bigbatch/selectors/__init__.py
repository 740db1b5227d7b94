"""Selectors: which samples of a batch are learned from, and how much.

A part offers `weights(losses, config, position) -> Tensor`, one weight for each loss: the gradient of the batch is
that of Σ wᵢ·lossᵢ / n with n counting all samples, so the divisor is in the weights. A part that discards entries
of the gradient also offers `edit_gradients(parameters, config)`, called once a step on the summed gradients.
In one's own loop:

    losses = cross_entropy(model(inputs), targets, reduction="none")
    with skip_zero_rows():
        kept_loss(losses, small_loss(losses, discard=0.3)).backward()
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from bigbatch import parts
from bigbatch.position import Position
from bigbatch.selectors._backward import kept_loss, skip_zero_rows
from bigbatch.selectors.small_gradient import small_gradient
from bigbatch.selectors.small_loss import small_loss

__all__ = ["edit_gradients", "kept_loss", "skip_zero_rows", "small_gradient", "small_loss", "weighs_samples", "weights"]


def weighs_samples(config: parts.Config) -> bool:
    """Whether samples may differ in weight; a part that says `WEIGHS_SAMPLES = False` is not asked for weights."""
    return getattr(parts.find("selectors", config.name), "WEIGHS_SAMPLES", True)


def weights(losses: Tensor, config: parts.Config, position: Position) -> Tensor:
    """One weight a sample; for the scope `global` the losses are those of the global batch in its order."""
    return parts.find("selectors", config.name).weights(losses, config, position)


def edit_gradients(parameters: Iterable[Tensor], config: parts.Config) -> None:
    """What the selector does to the summed gradients, which for most is nothing."""
    part = parts.find("selectors", config.name)
    if hasattr(part, "edit_gradients"):
        part.edit_gradients(parameters, config)
