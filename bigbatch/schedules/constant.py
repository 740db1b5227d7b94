"""The optimizer's lr from the first step to the last, whatever the batch (the unscaled control of every paper)."""

from __future__ import annotations

from bigbatch import parts
from bigbatch.position import Position
from bigbatch.schedules.curves.schedule import Peak, ScheduledRun


class Config(parts.Config):
    """No options."""


def peak(run: ScheduledRun, global_batch: int) -> Peak:
    """Return the optimizer's learning rate, without a warm-up."""
    return Peak(float(run.optimizer.lr))


def lr(position: Position, run: ScheduledRun) -> float:
    """Return the learning rate at a position."""
    return float(run.optimizer.lr)
