"""Decays: the remaining fraction of the peak learning rate, as a closed form of the epochs seen.

`polynomial` and `cosine` end at zero. They run either over the whole training, as LEGW writes it (section 3.2:
η(1 − i/I)ᵖ with i counted from the first step, so the learning rate falls by a little where the warm-up ends), or, with
`over="after_warmup"`, over what the warm-up leaves, as most implementations do.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from math import cos, floor, pi
from typing import Annotated, Literal

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


class MultiStep(BaseDecay):
    """A fall by `multiply_by` at each of the epochs."""

    kind: Literal["multi_step"] = "multi_step"
    at_epochs: tuple[Annotated[float, Field(gt=0)], ...]
    multiply_by: Fraction = 0.1

    @field_validator("at_epochs")
    @classmethod
    def _check_increasing(cls, at_epochs: tuple[float, ...]) -> tuple[float, ...]:
        if any(later <= earlier for earlier, later in pairwise(at_epochs)):
            raise ValueError("should increase, like (30, 60, 80)")
        return at_epochs

    def factor(self, epochs: float, total_epochs: float, warmup_epochs: float = 0.0) -> float:
        return self.multiply_by ** sum(epochs >= at for at in self.at_epochs)


class Polynomial(BaseDecay):
    """(1 − progress) to a power, LEGW section 3.2."""

    kind: Literal["polynomial"] = "polynomial"
    power: float = Field(2.0, gt=0)
    over: Over = "training"

    def factor(self, epochs: float, total_epochs: float, warmup_epochs: float = 0.0) -> float:
        return float((1 - _progress(self.over, epochs, total_epochs, warmup_epochs)) ** self.power)


class Exponential(BaseDecay):
    """Flat epochs, then a fall at the start of each further epoch.

    LEGW's language model (section 5.1.2): seven flat epochs, the eighth at half the learning rate, the ninth
    at a quarter.
    """

    kind: Literal["exponential"] = "exponential"
    flat_epochs: float = Field(7.0, ge=0)
    multiply_by: Fraction = 0.5

    def factor(self, epochs: float, total_epochs: float, warmup_epochs: float = 0.0) -> float:
        return self.multiply_by ** max(floor(epochs - self.flat_epochs) + 1, 0)


class Cosine(BaseDecay):
    """Half a cosine wave (Loshchilov & Hutter 2017, without restarts)."""

    kind: Literal["cosine"] = "cosine"
    over: Over = "training"

    def factor(self, epochs: float, total_epochs: float, warmup_epochs: float = 0.0) -> float:
        return (1 + cos(pi * _progress(self.over, epochs, total_epochs, warmup_epochs))) / 2


Decay = Annotated[Constant | MultiStep | Polynomial | Exponential | Cosine, Field(discriminator="kind")]


def _progress(over: Over, epochs: float, total_epochs: float, warmup_epochs: float) -> float:
    skipped_epochs = warmup_epochs if over == "after_warmup" else 0.0
    if epochs >= total_epochs:  # also where the warm-up takes the whole training
        return 1.0
    return (epochs - skipped_epochs) / (total_epochs - skipped_epochs)


def constant() -> Constant:
    """No decay."""
    return Constant()


def multi_step(*at_epochs: float, multiply_by: float = 0.1) -> MultiStep:
    """`multi_step(30, 60, 80)`: a tenth from epoch 30, a hundredth from 60, a thousandth from 80."""
    return validate_model(MultiStep, at_epochs=at_epochs, multiply_by=multiply_by)


def polynomial(power: float = 2.0, *, over: Over = "training") -> Polynomial:
    """(1 − progress) to the power."""
    return validate_model(Polynomial, power=power, over=over)


def exponential(flat_epochs: float = 7.0, *, multiply_by: float = 0.5) -> Exponential:
    """Flat, then multiplied at the start of each further epoch."""
    return validate_model(Exponential, flat_epochs=flat_epochs, multiply_by=multiply_by)


def cosine(*, over: Over = "training") -> Cosine:
    """Half a cosine wave down to zero."""
    return validate_model(Cosine, over=over)
