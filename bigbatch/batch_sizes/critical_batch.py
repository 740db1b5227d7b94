"""The batch doubles as the measured critical batch grows: a warm-up of the batch (Merrill et al. 2025).

arXiv 2505.23971: the critical batch is small at first and grows, so a training that starts with small batches and
doubles them when it can loses nothing. `bigbatch advise --branch` measures it. The learning rate follows the schedule:
use one that scales by the batch, like `composed` with scaling "sqrt".
"""

from __future__ import annotations

from itertools import pairwise
from math import floor, log2
from typing import Annotated

import numpy as np
from pydantic import Field, field_validator, model_validator

from bigbatch import parts
from bigbatch.batch_sizes import History
from bigbatch.position import Position


class Measurement(parts.FrozenModel):
    """The critical batch at one point of an earlier training."""

    epoch: float = Field(ge=0)
    critical_batch: float = Field(gt=0)


class Config(parts.Config):
    """Between two measurements the critical batch is on a straight line, outside of them it is the nearest one."""

    start: int = Field(gt=0)
    maximum: int = Field(gt=0)
    measured: Annotated[tuple[Measurement, ...], Field(min_length=1)]

    @field_validator("measured")
    @classmethod
    def _check_increasing(cls, measured: tuple[Measurement, ...]) -> tuple[Measurement, ...]:
        if any(later.epoch <= earlier.epoch for earlier, later in pairwise(measured)):
            raise ValueError("should have increasing epochs")
        return measured

    @model_validator(mode="after")
    def _check_maximum(self) -> Config:
        if self.maximum < self.start:
            raise ValueError(f"maximum {self.maximum} is below start {self.start}: give a larger maximum")
        return self


def at(position: Position, history: History, config: Config) -> int:
    """Return the largest start·2ⁿ up to the critical batch: never less than before, nor more than the maximum."""
    # a critical batch that falls again was a chance of its measurement
    critical = np.maximum.accumulate([measurement.critical_batch for measurement in config.measured])
    here = float(np.interp(position.epochs, [measurement.epoch for measurement in config.measured], critical))
    doublings: int = max(floor(log2(min(here, config.maximum) / config.start)), 0)
    return config.start << doublings


def largest(config: Config) -> int:
    """Return the batch after the last measurement."""
    return at(Position(config.measured[-1].epoch, np.inf, 0), (), config)
