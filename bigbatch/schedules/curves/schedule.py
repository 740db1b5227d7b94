"""Baseline -> Peak -> lr: a scaling rule, a warm-up and a decay as one closed form of the position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, Literal, Protocol

from bigbatch.errors import Problem
from bigbatch.position import Position
from bigbatch.schedules.curves.checks import check_not_negative, check_positive
from bigbatch.schedules.curves.decay import Decay, constant
from bigbatch.schedules.curves.warmup import gradual_warmup_lr

Scaling = Literal["linear", "sqrt", "none"]


@dataclass(frozen=True)
class Baseline:
    """The learning rate and warm-up that were tuned at one batch."""

    lr: float
    global_batch: int
    warmup_epochs: float = 0.0

    def __post_init__(self) -> None:
        check_positive("lr", self.lr)
        check_positive("global_batch", self.global_batch)
        check_not_negative("warmup_epochs", self.warmup_epochs)


@dataclass(frozen=True)
class Peak:
    """A baseline scaled to another batch: the learning rate after the warm-up, and the warm-up."""

    lr: float
    warmup_epochs: float = 0.0
    warmup_from: float = 0.0  # the learning rate at epoch 0
    warmup: Literal["gradual", "constant"] = "gradual"

    def __post_init__(self) -> None:
        check_positive("lr", self.lr)
        check_not_negative("warmup_epochs", self.warmup_epochs)
        check_not_negative("warmup_from", self.warmup_from)
        if self.warmup == "constant" and self.warmup_from == 0 and self.warmup_epochs > 0:
            raise Problem("warmup_from is 0 in a constant warm-up, which learns nothing: give a learning rate above 0")


def scale_lr(lr: float, k: float, scaling: Scaling) -> float:
    """Return the learning rate for k times the batch (Krizhevsky 2014); k may be below 1.

    `linear` keeps the expected step per sample, `sqrt` the variance of the step, `none` the tuned learning rate.
    """
    match scaling:
        case "linear":
            return lr * k
        case "sqrt":
            return lr * sqrt(k)
        case "none":
            return lr


ScalingRule = Callable[[Baseline, int], Peak]


@dataclass(frozen=True)
class Schedule:
    """`Schedule(legw, Baseline(...), polynomial())` is a function from a position to a learning rate.

    It has no state, so a resume is exact. Where the batch changes during a training, the learning rate is the one
    that a training with the current batch would have at this position.
    """

    rule: ScalingRule
    baseline: Baseline
    decay: Decay = field(default_factory=constant)

    def __call__(self, position: Position) -> float:
        return lr_at(position, self.rule(self.baseline, position.global_batch), self.decay)


def lr_at(position: Position, peak: Peak, decay: Decay) -> float:
    """Return the learning rate at a position: the warm-up to the peak, then the decay."""
    if peak.warmup_epochs > position.total_epochs:
        raise Problem(
            f"warmup_epochs is {peak.warmup_epochs:g} at global batch {position.global_batch}, longer than the "
            f"training of {position.total_epochs:g} epochs: shorten the baseline's warm-up or train longer"
        )
    if position.epochs >= peak.warmup_epochs:
        return peak.lr * decay.factor(position.epochs, position.total_epochs, peak.warmup_epochs)
    if peak.warmup == "constant":
        return peak.warmup_from
    return gradual_warmup_lr(position.epochs, peak.warmup_epochs, peak.warmup_from, peak.lr)


class ScheduledRun(Protocol):
    """What a schedule reads of a run."""

    @property
    def optimizer(self) -> Any:
        """Has `lr`: the learning rate tuned at the baseline's batch, or the peak itself where nothing is scaled."""

    @property
    def schedule(self) -> Any:
        """The Config of a schedule."""

    @property
    def global_batch(self) -> Any:
        """The Config of a batch size."""
