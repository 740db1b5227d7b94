"""Losses per sample: selectors read them, and their sum over the global batch is differentiated."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def per_sample_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of each sample, never in half precision; for text the mean over its window."""
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    if logits.dim() == 2:
        return F.cross_entropy(logits, targets, reduction="none")
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets).mean(dim=1)


def count_correct(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the number of correct predictions; of text each sample counts as its fraction of correct words."""
    correct = logits.detach().argmax(dim=-1) == targets
    return correct.sum() / (targets.numel() / len(targets))
