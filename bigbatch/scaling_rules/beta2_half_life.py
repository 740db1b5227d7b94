"""β₂ to the k-th power, β₁ as it is, lr √k for k times the batch (Marek et al. 2025, arXiv 2507.07101)."""

from __future__ import annotations

from math import sqrt

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.run import Change, Run
from bigbatch.scaling_rules import half_life_decay, scale_ema, scale_lr, scale_weight_decay


class Config(parts.Config):
    """No options."""


def rescale(run: Run, k: float, config: Config) -> list[Change]:
    """Squared gradients are forgotten by half after as many samples at every batch."""
    if not hasattr(run.optimizer, "betas"):
        raise Problem(f"optimizer '{run.optimizer.name}' has no betas: use another scaling rule, like 'sqrt'")
    beta1, beta2 = run.optimizer.betas
    return [
        *scale_lr(run, k, sqrt(k), "√k times"),
        Change("optimizer.betas", (beta1, beta2), (beta1, half_life_decay(beta2, k)), "β₂: half-life in samples stays"),
        *scale_weight_decay(run, k, sqrt(k)),
        *scale_ema(run, k),
    ]
