"""Adam's SDE rule: lr √k, 1 − β k-fold, ε/√k for k times the batch (Malladi et al. 2022, arXiv 2205.10287)."""

from __future__ import annotations

from math import sqrt
from typing import Any

from bigbatch import parts
from bigbatch.run import Change, Run
from bigbatch.scaling_rules import scale_ema, scale_lr, scale_weight_decay


class Config(parts.Config):
    """No options."""


def sde_beta(beta: float, k: float) -> float:
    """1 − k(1 − β), at least 0: from k = 1/(1 − β) on, 10 for β₁ = 0.9, there is no average left to take."""
    return max(1 - k * (1 - beta), 0.0)


def rescale(run: Run, k: float, config: Config) -> list[Change]:
    """The square root scaling rule of Adam and RMSprop: at k times the batch the steps follow the same SDE.

    It is derived for gradients whose noise is larger than their mean. Time is counted in samples, so the warm-up has
    as many epochs at every batch. A decoupled weight decay keeps its timescale; L2 is a part of the loss and stays.
    """
    optimizer: Any = run.optimizer
    changes = scale_lr(run, k, sqrt(k), "√k times")
    if hasattr(optimizer, "betas"):
        betas = tuple(optimizer.betas)
        changes.append(Change("optimizer.betas", betas, tuple(sde_beta(beta, k) for beta in betas), "1 − β k-fold"))
    if hasattr(optimizer, "alpha"):  # RMSprop's β
        changes.append(Change("optimizer.alpha", optimizer.alpha, sde_beta(optimizer.alpha, k), "1 − α k-fold"))
    if hasattr(optimizer, "eps"):
        changes.append(Change("optimizer.eps", optimizer.eps, optimizer.eps / sqrt(k), "the noise falls by √k"))
    return [*changes, *scale_weight_decay(run, k, sqrt(k)), *scale_ema(run, k)]
