"""Selectors: which samples of a batch are learned from, and how much.

A part offers `weights(losses, config, position) -> Tensor`, one weight per loss: the gradient of the batch is that of
Σ wᵢ·lossᵢ / n with n counting all samples, so the divisor is in the weights. Where all weights are 1 the Config says
`weights_samples = False`. A part that discards entries of the gradient says `edits_gradients = True` and offers
`edit_gradients(parameters, config)`, called once per step on the summed gradients. In your own loop:

    losses = cross_entropy(model(inputs), targets, reduction="none")
    with skip_zero_rows():
        kept_loss(losses, small_loss(losses, discard=0.3)).backward()
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from bigbatch import parts
from bigbatch.position import Position
from bigbatch.selectors.discarding.backward import kept_loss, skip_zero_rows
from bigbatch.selectors.small_gradient import small_gradient
from bigbatch.selectors.small_loss import small_loss

__all__ = ["edit_gradients", "kept_loss", "skip_zero_rows", "small_gradient", "small_loss", "weights"]


def weights(losses: Tensor, config: parts.Config, position: Position) -> Tensor:
    """Return one weight per sample. By default the losses are those of the global batch in its order."""
    found: Tensor = parts.find("selectors", config.name).weights(losses, config, position)
    return found


def edit_gradients(parameters: Iterable[Tensor], config: parts.Config) -> None:
    """Let the selector change the summed gradients in place; most selectors do not."""
    if config.edits_gradients:
        parts.find("selectors", config.name).edit_gradients(parameters, config)
