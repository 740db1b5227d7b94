"""Cross-entropy, with label smoothing if wanted (Szegedy et al. 2016, section 7), torch's."""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from bigbatch import parts


class Config(parts.Config):
    """The target is 1 − ε + ε/K for the sample's class and ε/K for each of the others, ε = label_smoothing."""

    label_smoothing: float = Field(0.0, ge=0, lt=1, description="ε, spread evenly over all classes")


def per_sample_loss(logits: Tensor, targets: Tensor, config: Config) -> Tensor:
    """Return −Σ target·log softmax(logits) of each sample."""
    return F.cross_entropy(logits, targets, reduction="none", label_smoothing=config.label_smoothing)
