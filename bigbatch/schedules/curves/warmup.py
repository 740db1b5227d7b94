"""Warm-ups: the first epochs at less than the peak learning rate (Goyal et al. 2017, section 2.2)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bigbatch import parts

Start = Annotated[float, Field(ge=0, le=1)] | Literal["baseline"]


class NoWarmup(parts.FrozenModel):
    """The peak from the first step."""

    kind: Literal["none"] = "none"


class ConstantWarmup(parts.FrozenModel):
    """One low learning rate, then the peak at once."""

    kind: Literal["constant"] = "constant"
    epochs: float = Field(gt=0)
    start: Annotated[float, Field(gt=0, le=1)] | Literal["baseline"] = "baseline"  # fraction of the peak, or unscaled


class GradualWarmup(parts.FrozenModel):
    """A straight line from the start to the peak."""

    kind: Literal["gradual"] = "gradual"
    epochs: float = Field(gt=0)
    start: Start = 0.0  # fraction of the peak, or the unscaled baseline's learning rate as in Goyal et al.


Warmup = Annotated[NoWarmup | ConstantWarmup | GradualWarmup, Field(discriminator="kind")]


def gradual_warmup_lr(epochs: float, warmup_epochs: float, start_lr: float, peak_lr: float) -> float:
    """Return the learning rate on the straight line from `start_lr` at epoch 0 to `peak_lr` at `warmup_epochs`."""
    return start_lr + (peak_lr - start_lr) * epochs / warmup_epochs
