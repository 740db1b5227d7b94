"""LEGW: √k times the learning rate and k times the warm-up epochs for k times the batch (You et al. 2018)."""

from __future__ import annotations

from math import sqrt

from bigbatch import parts
from bigbatch.run import Change, Run
from bigbatch.scaling_rules import scale_ema, scale_lr, scale_warmup, scale_weight_decay


class Config(parts.Config):
    """No options."""


def rescale(run: Run, k: float, config: Config) -> list[Change]:
    """Sections 3 and 3.1. L2 weight decay stays as in the paper.

    A warm-up that becomes longer than the training is refused by the schedule before any work.
    """
    return [
        *scale_lr(run, k, sqrt(k), "√k times"),
        *scale_warmup(run, k, k, "k times"),
        *scale_weight_decay(run, k, sqrt(k)),
        *scale_ema(run, k),
    ]
