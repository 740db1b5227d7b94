"""Losses, one a sample: what a selector chooses by and what is summed over the global batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def per_sample_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of each sample, never in half precision; for text the mean over the steps of its window."""
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    if logits.dim() == 2:
        return F.cross_entropy(logits, targets, reduction="none")
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets).mean(dim=1)


def count_correct(logits: Tensor, targets: Tensor) -> Tensor:
    """How many predictions are right; for text in units of samples: each window counts its fraction of right words."""
    right = logits.detach().argmax(dim=-1) == targets
    return right.sum() / (targets.numel() / len(targets))
