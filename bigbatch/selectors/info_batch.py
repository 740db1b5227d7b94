"""InfoBatch: prune samples of below-mean loss at random and weight the rest of them up (Qin et al. 2024).

arXiv 2303.04947: with the probability r = `prune` a sample whose loss is below the mean is left out; the others of them
get the weight 1/(1 − r), so that the expected gradient is that of all samples. The last 1 − `anneal` of the training
prunes nothing. Here the mean and the losses are those of the batch in this step, where the paper has each sample's loss
of the epoch before: a forward pass of all samples is still made, the backward pass is saved.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from bigbatch import parts, rng
from bigbatch.position import Position


class Config(parts.Config):
    """The paper's numbers. `seed` chooses another random stream."""

    is_random = True
    prune: float = Field(0.5, ge=0, lt=1)
    anneal: float = Field(0.875, ge=0, le=1)
    passes: Literal["one", "two"] = "one"  # as in small_loss
    seed: int = Field(0, ge=0)

    @property
    def selects_in_one_pass(self) -> bool:  # type: ignore[override]
        return self.passes == "one"


def weights(losses: Tensor, config: Config, position: Position) -> Tensor:
    """Return 0 for pruned samples, 1/(1 − r) for others of below-mean loss, 1 for the rest, NaN among them."""
    losses = losses.detach()
    if position.epochs >= config.anneal * position.total_epochs:
        return torch.ones_like(losses)
    draws = rng.uniform(config.seed, position.samples, rng.PRUNING, torch.arange(len(losses)).numpy())
    return info_batch(losses, torch.from_numpy(draws).to(losses.device), config.prune)


def info_batch(losses: Tensor, draws: Tensor, prune: float) -> Tensor:
    """Return one weight per sample from its loss and a random number in [0, 1), so that E[Σ wᵢ·lossᵢ] = Σ lossᵢ."""
    below_mean = losses < losses[losses.isfinite()].mean()
    kept = torch.ones_like(losses).masked_fill(below_mean, 1 / (1 - prune))
    return kept.masked_fill(below_mean & (draws < prune), 0.0)
