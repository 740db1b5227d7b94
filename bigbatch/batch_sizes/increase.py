"""The batch grows where the learning rate would have fallen, up to a maximum (Smith et al. 2018)."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field, model_validator

from bigbatch import parts
from bigbatch.batch_sizes import History
from bigbatch.position import Position
from bigbatch.schedules.curves.decay import Decay
from bigbatch.schedules.curves.plan import schedule_lr
from bigbatch.schedules.curves.schedule import ScheduledRun


class Config(parts.Config):
    """`decay` is replaced by growth of the batch: set it here and not in the schedule."""

    sets_lr = True
    start: int = Field(gt=0)
    maximum: int = Field(gt=0)
    decay: Decay

    @model_validator(mode="after")
    def _check_maximum(self) -> Config:
        if self.maximum < self.start:
            raise ValueError(f"maximum {self.maximum} is below start {self.start}: give a larger maximum")
        return self


def at(position: Position, history: History, config: Config) -> int:
    """Return the start divided by the decay, at most the maximum."""
    remaining = config.decay.factor(position.epochs, position.total_epochs)
    if config.start >= config.maximum * remaining:
        return config.maximum
    return round(config.start / remaining)


def largest(config: Config) -> int:
    """Return the maximum."""
    return config.maximum


def lr(position: Position, run: ScheduledRun) -> float:
    """Return the schedule's learning rate at the starting batch, times the decay that the batch did not replace.

    Learning rate over batch, the scale of the noise (section 3), then falls as with the decay itself. A scaling rule
    sees the starting batch: growth is in the place of decay, not a reason for a higher learning rate.
    """
    options: Config = run.global_batch
    remaining = options.decay.factor(position.epochs, position.total_epochs)
    growth = position.global_batch / options.start
    return schedule_lr(replace(position, global_batch=options.start), run) * remaining * growth
