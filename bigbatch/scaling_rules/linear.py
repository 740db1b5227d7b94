"""k times the learning rate for k times the batch (Krizhevsky 2014; Goyal et al. 2017)."""

from __future__ import annotations

from bigbatch import parts
from bigbatch.run import Change, Run
from bigbatch.scaling_rules import scale_ema, scale_lr


class Config(parts.Config):
    """No options."""


def rescale(run: Run, k: float, config: Config) -> list[Change]:
    """Goyal et al., section 2.1: "when the minibatch size is multiplied by k, multiply the learning rate by k".

    All other options stay: lr·λ is k-fold already, and the warm-up has as many epochs at every batch.
    """
    return [*scale_lr(run, k, k, "k times"), *scale_ema(run, k)]
