"""The batch follows the measured gradient noise scale (McCandlish et al. 2018)."""

from __future__ import annotations

from math import floor, isfinite, log2

from pydantic import Field, model_validator

from bigbatch import parts
from bigbatch.batch_sizes import History
from bigbatch.position import Position

NEEDS_PROBE = "noise_scale"


class Config(parts.Config):
    """Needs the probe `noise_scale`, whose rows it goes by."""

    start: int = Field(gt=0)
    minimum: int = Field(gt=0)
    maximum: int = Field(gt=0)
    fraction: float = Field(1.0, gt=0)  # at 1: twice the least samples, twice the least steps
    every_epochs: float = Field(1.0, gt=0)

    @model_validator(mode="after")
    def _in_order(self) -> Config:
        if not self.minimum <= self.start <= self.maximum:
            raise ValueError(
                f"start {self.start} is not between minimum {self.minimum} and maximum {self.maximum}: move one of them"
            )
        return self


def at(position: Position, history: History, config: Config) -> int:
    """The batch decided on last; decisions fall on the multiples of `every_epochs` and see the rows before them.

    Only the position and the rows enter, so a resumed training decides as the first one did.
    """
    decided_at_epochs = floor(position.epochs / config.every_epochs) * config.every_epochs
    for row in reversed(history):
        scale = row.get("noise_scale", {}).get("whole")
        # no finite positive value: the gradient was lost in the noise, nothing to go by
        if scale is not None and isfinite(scale) and scale > 0 and row["epoch"] <= decided_at_epochs:
            return _rounded(scale, config)
    return config.start


def largest(config: Config) -> int:
    """The maximum."""
    return config.maximum


def _rounded(scale: float, config: Config) -> int:
    """The nearest power of two: an estimate is seldom better than that, and small changes would only cost time."""
    return min(max(2 ** round(log2(config.fraction * scale)), config.minimum), config.maximum)
