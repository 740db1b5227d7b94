"""Linear scaling with a gradual warm-up of 5 epochs from the baseline's learning rate (Goyal et al. 2017)."""

from __future__ import annotations

from pydantic import Field

from bigbatch import parts
from bigbatch.position import Position
from bigbatch.schedules.curves.checks import check_positive
from bigbatch.schedules.curves.decay import Decay, MultiStep
from bigbatch.schedules.curves.schedule import Baseline, Peak, ScheduledRun, lr_at

WARMUP_EPOCHS = 5.0


class Config(parts.Config):
    """`optimizer.lr` is the learning rate tuned at `baseline_batch`; the decay is the paper's for 90 epochs."""

    baseline_batch: int = Field(gt=0)
    warmup_epochs: float = Field(WARMUP_EPOCHS, ge=0)  # at every batch
    decay: Decay = MultiStep(at_epochs=(30.0, 60.0, 80.0))


def goyal(baseline: Baseline, global_batch: int, *, warmup_epochs: float = WARMUP_EPOCHS) -> Peak:
    """Section 2: k times the batch, k times the learning rate, the warm-up as long at every batch.

    The ramp starts at the baseline's lr, which small batches tolerate; below the baseline's batch there is no
    ramp and the scaled learning rate holds from the first step. The baseline's own warm-up is not used.
    """
    check_positive("global_batch", global_batch)
    peak_lr = baseline.lr * global_batch / baseline.global_batch
    return Peak(peak_lr, warmup_epochs, warmup_from=min(baseline.lr, peak_lr))


def peak(run: ScheduledRun, global_batch: int) -> Peak:
    """Return learning rate and warm-up at a batch."""
    options: Config = run.schedule
    baseline = Baseline(run.optimizer.lr, options.baseline_batch)
    return goyal(baseline, global_batch, warmup_epochs=options.warmup_epochs)


def lr(position: Position, run: ScheduledRun) -> float:
    """Return the learning rate at a position."""
    return lr_at(position, peak(run, position.global_batch), run.schedule.decay)
