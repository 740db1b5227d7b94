"""The optimizer's lr from the first step to the last, whatever the batch (the unscaled control of every paper)."""

from __future__ import annotations

from bigbatch import parts
from bigbatch.position import Position
from bigbatch.schedules._schedule import Run


class Config(parts.Config):
    """No options."""


def lr(position: Position, run: Run) -> float:
    """The learning rate at a position."""
    return float(run.optimizer.lr)
