"""Multiplicative gradient noise: random sample weights that give a large batch a small one's noise (Wu et al. 2020).

arXiv 1906.07405. Weights of mean 1 and variance v add v times the covariance that the batch's own sampling has. With
v = B/b − 1 a batch of B has the gradient noise of one of b = `noise_batch`, whatever the distribution of the weights:
"gaussian" may turn a sample's gradient around; "bernoulli" leaves samples out, each with the probability 1 − b/B.
"""

from __future__ import annotations

from math import sqrt
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from bigbatch import parts, rng
from bigbatch.position import Position


class Config(parts.Config):
    """`seed` chooses another random stream."""

    is_random = True
    reads_losses = False
    noise_batch: int = Field(gt=0)
    distribution: Literal["gaussian", "bernoulli"] = "gaussian"
    seed: int = Field(0, ge=0)


def weights(losses: Tensor, config: Config, position: Position) -> Tensor:
    """Return weights of mean 1 and variance B/b − 1; 1 where the batch is not larger than b."""
    ratio = max(len(losses) / config.noise_batch, 1.0)
    draws = rng.uniform(config.seed, position.samples, rng.GRADIENT_NOISE, torch.arange(len(losses)).numpy())
    uniform = torch.from_numpy(draws).to(losses.device)
    if config.distribution == "bernoulli":
        return torch.where(uniform < 1 / ratio, ratio, 0.0).to(losses.dtype)
    # half a step away from 0, where the normal quantile is infinite
    normal: Tensor = torch.special.ndtri(uniform + 2.0**-54)
    return (1 + sqrt(ratio - 1) * normal).to(losses.dtype)
