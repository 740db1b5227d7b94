"""Nothing follows the batch (the unscaled control of every paper)."""

from __future__ import annotations

from bigbatch import parts
from bigbatch.run import Change, Run
from bigbatch.scaling_rules import scale_lr


class Config(parts.Config):
    """No options."""


def rescale(run: Run, k: float, config: Config) -> list[Change]:
    """Return no change. A schedule that scales is refused: with it the learning rate would not stay."""
    return scale_lr(run, k, 1.0, "stays")
