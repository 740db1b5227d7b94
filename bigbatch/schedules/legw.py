"""LEGW: √k times the learning rate and k times the warm-up epochs for k times the batch (You et al. 2018)."""

from __future__ import annotations

from math import sqrt

from pydantic import Field

from bigbatch import parts
from bigbatch.position import Position
from bigbatch.schedules.curves.checks import check_positive
from bigbatch.schedules.curves.decay import Decay, Polynomial
from bigbatch.schedules.curves.schedule import Baseline, Peak, ScheduledRun, lr_at


class Config(parts.Config):
    """`optimizer.lr` is the learning rate tuned at `baseline_batch`."""

    baseline_batch: int = Field(gt=0)
    warmup_epochs: float = Field(ge=0)  # of the baseline
    decay: Decay = Polynomial()


def legw(baseline: Baseline, global_batch: int) -> Peak:
    """Sections 3 and 3.1: k times the batch, √k times the learning rate, k times the warm-up epochs.

    k below 1 scales a tuned large batch down (section 3.3). The ramp starts at 0.
    """
    check_positive("global_batch", global_batch)
    k = global_batch / baseline.global_batch
    return Peak(lr=baseline.lr * sqrt(k), warmup_epochs=baseline.warmup_epochs * k)


def peak(run: ScheduledRun, global_batch: int) -> Peak:
    """Return learning rate and warm-up at a batch."""
    options: Config = run.schedule
    return legw(Baseline(run.optimizer.lr, options.baseline_batch, options.warmup_epochs), global_batch)


def lr(position: Position, run: ScheduledRun) -> float:
    """Return the learning rate at a position."""
    return lr_at(position, peak(run, position.global_batch), run.schedule.decay)
