"""Muon: k to a power times the learning rate, weight decay by constant timescale (no published rule: √k for now)."""

from __future__ import annotations

from pydantic import Field

from bigbatch import parts
from bigbatch.run import Change, Run
from bigbatch.scaling_rules import scale_ema, scale_lr, scale_weight_decay


class Config(parts.Config):
    """The learning rate is multiplied by k to this power."""

    lr_exponent: float = Field(0.5, ge=0, le=1)


def rescale(run: Run, k: float, config: Config) -> list[Change]:
    """Momentum and the warm-up's epochs stay, a decoupled weight decay keeps its timescale."""
    factor = k**config.lr_exponent
    return [
        *scale_lr(run, k, factor, f"k^{config.lr_exponent:g} times"),
        *scale_weight_decay(run, k, factor),
        *scale_ema(run, k),
    ]
