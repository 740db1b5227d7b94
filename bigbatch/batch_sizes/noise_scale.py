"""The batch follows the measured gradient noise scale (McCandlish et al. 2018)."""

from __future__ import annotations

from math import floor, isfinite, log2

from pydantic import Field, model_validator

from bigbatch import parts
from bigbatch.batch_sizes import History
from bigbatch.position import Position


class Config(parts.Config):
    """Needs the probe `noise_scale`, whose measurements it follows."""

    needs_probe = "noise_scale"
    start: int = Field(gt=0)
    minimum: int = Field(gt=0)
    maximum: int = Field(gt=0)
    fraction: float = Field(1.0, gt=0)  # at 1: twice the least samples, twice the least steps
    every_epochs: float = Field(1.0, gt=0)

    @model_validator(mode="after")
    def _check_order(self) -> Config:
        if not self.minimum <= self.start <= self.maximum:
            raise ValueError(
                f"start {self.start} is not between minimum {self.minimum} and maximum {self.maximum}: move one of them"
            )
        return self


def at(position: Position, history: History, config: Config) -> int:
    """Return the batch chosen last; a choice is made at each multiple of `every_epochs` from the rows before it.

    It depends on the position and the rows only, so a resumed training chooses the same batches.
    """
    chosen_at_epochs = floor(position.epochs / config.every_epochs) * config.every_epochs
    for row in reversed(history):
        scale = row.get("noise_scale", {}).get("whole")
        # not finite or not positive: the noise hid the gradient, so there is no estimate
        if scale is not None and isfinite(scale) and scale > 0 and row["epoch"] <= chosen_at_epochs:
            return _power_of_two(scale, config)
    return config.start


def largest(config: Config) -> int:
    """Return the maximum."""
    return config.maximum


def _power_of_two(scale: float, config: Config) -> int:
    """Return the nearest power of two: estimates are not more precise, and small changes would only cost time."""
    return int(min(max(2 ** round(log2(config.fraction * scale)), config.minimum), config.maximum))
