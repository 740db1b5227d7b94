"""The batch grows where the learning rate would have fallen, up to a maximum (Smith et al. 2018)."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field, model_validator

from bigbatch import parts
from bigbatch.batch_sizes import History
from bigbatch.position import Position
from bigbatch.schedules import Decay, Run, scheduled


class Config(parts.Config):
    """`decay` is the one to be replaced by growth: it stands here and not in the schedule."""

    start: int = Field(gt=0)
    maximum: int = Field(gt=0)
    decay: Decay

    @model_validator(mode="after")
    def _room_to_grow(self) -> Config:
        if self.maximum < self.start:
            raise ValueError(f"maximum {self.maximum} is below start {self.start}: give a larger maximum")
        return self


def at(position: Position, history: History, config: Config) -> int:
    """The start, divided by the decay."""
    left = config.decay.factor(position.epochs, position.total_epochs)
    if config.start >= config.maximum * left:
        return config.maximum
    return round(config.start / left)


def largest(config: Config) -> int:
    """The maximum."""
    return config.maximum


def lr(position: Position, run: Run) -> float:
    """The schedule's learning rate at the starting batch, times the part of the decay that the batch did not take over.

    Rate over batch, the scale of the noise (section 3), then falls as with the decay itself. A scaling rule sees
    the starting batch: growth is in the place of decay, not a reason for a higher learning rate.
    """
    options: Config = run.global_batch
    left = options.decay.factor(position.epochs, position.total_epochs)
    growth = position.global_batch / options.start
    return scheduled(replace(position, global_batch=options.start), run) * left * growth
