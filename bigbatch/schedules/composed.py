"""Any scaling rule, warm-up and decay put together by hand (Krizhevsky 2014; Goyal et al. 2017)."""

from __future__ import annotations

from pydantic import Field, model_validator

from bigbatch import parts
from bigbatch.position import Position
from bigbatch.schedules.curves.decay import Constant, Decay
from bigbatch.schedules.curves.schedule import Baseline, Peak, Scaling, ScheduledRun, lr_at, scale_lr
from bigbatch.schedules.curves.warmup import NoWarmup, Warmup


class Config(parts.Config):
    """`optimizer.lr` is the learning rate tuned at `baseline_batch`, or the peak itself where nothing is scaled."""

    scaling: Scaling = "none"
    baseline_batch: int | None = Field(None, gt=0)
    warmup: Warmup = NoWarmup()
    decay: Decay = Constant()

    @model_validator(mode="after")
    def _check_baseline(self) -> Config:
        if self.scaling != "none" and self.baseline_batch is None:
            raise ValueError(f"scaling '{self.scaling}' needs baseline_batch: the batch that the lr was tuned at")
        return self


def peak(run: ScheduledRun, global_batch: int) -> Peak:
    """Return the scaled learning rate with a warm-up that starts at a fraction of it or at the baseline's."""
    options: Config = run.schedule
    baseline = Baseline(run.optimizer.lr, options.baseline_batch or global_batch)
    peak_lr = scale_lr(baseline.lr, global_batch / baseline.global_batch, options.scaling)
    warmup = options.warmup
    if warmup.kind == "none":
        return Peak(peak_lr)
    start_lr = min(baseline.lr, peak_lr) if warmup.start == "baseline" else warmup.start * peak_lr
    return Peak(peak_lr, warmup.epochs, start_lr, warmup.kind)


def lr(position: Position, run: ScheduledRun) -> float:
    """Return the learning rate at a position."""
    return lr_at(position, peak(run, position.global_batch), run.schedule.decay)
