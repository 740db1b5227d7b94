"""Decays: the remaining fraction of the peak learning rate, as a closed form of the epochs seen.

`polynomial` and `cosine` run over what the warm-up leaves, so the learning rate falls from the peak that the warm-up
reached. With `over="training"` they run over the whole training, as LEGW writes it (section 3.2: η(1 − i/I)ᵖ with i
counted from the first step): where the warm-up ends, the learning rate then drops by what they have decayed so far.
All decays can end at a `floor`, a fraction of the peak.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from math import cos, floor, pi, sqrt
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from bigbatch import parts
from bigbatch.schedules.curves.checks import validate_model

Over = Literal["training", "after_warmup"]
Fraction = Annotated[float, Field(gt=0, le=1)]


class BaseDecay(parts.FrozenModel):
    """Base of the decays."""

    @abstractmethod
    def factor(self, epochs: float, total_epochs: float, warmup_epochs: float = 0.0) -> float:
        """Return the fraction of the peak learning rate at `epochs`, which is after the warm-up."""


class Constant(BaseDecay):
    """The peak until the end."""

    kind: Literal["constant"] = "constant"

    def factor(self, epochs: float, total_epochs: float, warmup_epochs: float = 0.0) -> float:
        return 1.0


class Falling(BaseDecay):
    """Base of the decays that end at a floor."""

    later_fields: ClassVar[tuple[str, ...]] = ("floor",)
    floor: float = Field(0.0, ge=0, lt=1)  # fraction of the peak

    def factor(self, epochs: float, total_epochs: float, warmup_epochs: float = 0.0) -> float:
        return self.floor + (1 - self.floor) * self.lr_fraction_above_floor(epochs, total_epochs, warmup_epochs)

    @abstractmethod
    def lr_fraction_above_floor(self, epochs: float, total_epochs: float, warmup_epochs: float) -> float:
        """Return what is left of the way from the peak to the floor."""


class MultiStep(BaseDecay):
    """A fall by `multiply_by` at each of the epochs."""

    kind: Literal["multi_step"] = "multi_step"
    at_epochs: tuple[Annotated[float, Field(gt=0)], ...]
    multiply_by: Fraction = 0.1
    later_fields: ClassVar[tuple[str, ...]] = ("floor",)
    floor: float = Field(0.0, ge=0, lt=1)  # no fall goes below this fraction of the peak

    @field_validator("at_epochs")
    @classmethod
    def _check_increasing(cls, at_epochs: tuple[float, ...]) -> tuple[float, ...]:
        if any(later <= earlier for earlier, later in pairwise(at_epochs)):
            raise ValueError("should increase, like (30, 60, 80)")
        return at_epochs

    def factor(self, epochs: float, total_epochs: float, warmup_epochs: float = 0.0) -> float:
        return max(self.multiply_by ** sum(epochs >= at for at in self.at_epochs), self.floor)


class Polynomial(Falling):
    """(1 − progress) to a power, LEGW section 3.2."""

    kind: Literal["polynomial"] = "polynomial"
    power: float = Field(2.0, gt=0)
    over: Over = "after_warmup"

    def lr_fraction_above_floor(self, epochs: float, total_epochs: float, warmup_epochs: float) -> float:
        return float((1 - _progress(self.over, epochs, total_epochs, warmup_epochs)) ** self.power)


class Exponential(BaseDecay):
    """Flat epochs, then a fall at the start of each further epoch.

    LEGW's language model (section 5.1.2): seven flat epochs, the eighth at half the learning rate, the ninth
    at a quarter.
    """

    kind: Literal["exponential"] = "exponential"
    flat_epochs: float = Field(7.0, ge=0)
    multiply_by: Fraction = 0.5
    later_fields: ClassVar[tuple[str, ...]] = ("floor",)
    floor: float = Field(0.0, ge=0, lt=1)  # no fall goes below this fraction of the peak

    def factor(self, epochs: float, total_epochs: float, warmup_epochs: float = 0.0) -> float:
        return max(self.multiply_by ** max(floor(epochs - self.flat_epochs) + 1, 0), self.floor)


class Cosine(Falling):
    """Half a cosine wave (Loshchilov & Hutter 2017, without restarts)."""

    kind: Literal["cosine"] = "cosine"
    over: Over = "after_warmup"

    def lr_fraction_above_floor(self, epochs: float, total_epochs: float, warmup_epochs: float) -> float:
        return (1 + cos(pi * _progress(self.over, epochs, total_epochs, warmup_epochs))) / 2


class WarmupStableDecay(Falling):
    """The peak until the last `decay_fraction` of the training, then down (Hu et al. 2024, arXiv 2404.06395).

    `shape` is a straight line, or 1 − √progress, which Hägele et al. 2024 (arXiv 2405.18392) found better.
    """

    kind: Literal["warmup_stable_decay"] = "warmup_stable_decay"
    decay_fraction: Fraction = 0.2
    shape: Literal["linear", "sqrt"] = "linear"

    def lr_fraction_above_floor(self, epochs: float, total_epochs: float, warmup_epochs: float) -> float:
        stable_epochs = max(total_epochs * (1 - self.decay_fraction), warmup_epochs)
        progress = _progress("after_warmup", max(epochs, stable_epochs), total_epochs, stable_epochs)
        return 1 - (sqrt(progress) if self.shape == "sqrt" else progress)


Decay = Annotated[
    Constant | MultiStep | Polynomial | Exponential | Cosine | WarmupStableDecay, Field(discriminator="kind")
]


def _progress(over: Over, epochs: float, total_epochs: float, warmup_epochs: float) -> float:
    skipped_epochs = warmup_epochs if over == "after_warmup" else 0.0
    if epochs >= total_epochs:  # also where the warm-up takes the whole training
        return 1.0
    return (epochs - skipped_epochs) / (total_epochs - skipped_epochs)


def constant() -> Constant:
    """No decay."""
    return Constant()


def multi_step(*at_epochs: float, multiply_by: float = 0.1, floor: float = 0.0) -> MultiStep:
    """`multi_step(30, 60, 80)`: a tenth from epoch 30, a hundredth from 60, a thousandth from 80."""
    return validate_model(MultiStep, at_epochs=at_epochs, multiply_by=multiply_by, floor=floor)


def polynomial(power: float = 2.0, *, over: Over = "after_warmup", floor: float = 0.0) -> Polynomial:
    """(1 − progress) to the power."""
    return validate_model(Polynomial, power=power, over=over, floor=floor)


def exponential(flat_epochs: float = 7.0, *, multiply_by: float = 0.5, floor: float = 0.0) -> Exponential:
    """Flat, then multiplied at the start of each further epoch."""
    return validate_model(Exponential, flat_epochs=flat_epochs, multiply_by=multiply_by, floor=floor)


def cosine(*, over: Over = "after_warmup", floor: float = 0.0) -> Cosine:
    """Half a cosine wave down to the floor."""
    return validate_model(Cosine, over=over, floor=floor)


def warmup_stable_decay(
    decay_fraction: float = 0.2, *, shape: Literal["linear", "sqrt"] = "linear", floor: float = 0.0
) -> WarmupStableDecay:
    """The peak, then down over the last part of the training."""
    return validate_model(WarmupStableDecay, decay_fraction=decay_fraction, shape=shape, floor=floor)
