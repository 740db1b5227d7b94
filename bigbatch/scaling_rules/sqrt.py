"""√k times the learning rate for k times the batch, which keeps the variance of a step (Krizhevsky 2014)."""

from __future__ import annotations

from math import sqrt

from bigbatch import parts
from bigbatch.run import Change, Run
from bigbatch.scaling_rules import scale_ema, scale_lr, scale_weight_decay


class Config(parts.Config):
    """No options."""


def rescale(run: Run, k: float, config: Config) -> list[Change]:
    """The warm-up has as many epochs at every batch; a decoupled weight decay keeps its timescale."""
    return [*scale_lr(run, k, sqrt(k), "√k times"), *scale_weight_decay(run, k, sqrt(k)), *scale_ema(run, k)]
