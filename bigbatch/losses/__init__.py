"""Losses. A part offers `per_sample_loss(logits, targets, config) -> Tensor`, one loss per sample.

Selectors read the losses of samples, and their sum over the global batch is differentiated. Evaluations always report
the plain cross-entropy, so that test losses of runs with different losses compare.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bigbatch import parts

CROSS_ENTROPY = parts.configure("losses", "cross_entropy")


def per_sample_loss(logits: Tensor, targets: Tensor, config: parts.Config = CROSS_ENTROPY) -> Tensor:
    """Return the loss of each sample, never in half precision; for text the mean over its window."""
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    part = parts.find("losses", config.name)
    if logits.dim() == 2:
        losses: Tensor = part.per_sample_loss(logits, targets, config)
        return losses
    losses = part.per_sample_loss(logits.flatten(0, 1), targets.flatten(), config)
    return losses.view_as(targets).mean(dim=1)


def count_correct(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the number of correct predictions; of text each sample counts as its fraction of correct words."""
    correct = logits.detach().argmax(dim=-1) == targets
    return correct.sum() / (targets.numel() / len(targets))
