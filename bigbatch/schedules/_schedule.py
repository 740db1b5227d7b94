"""Baseline -> Peak -> lr: a scaling rule, a warm-up and a decay, put together as one closed form of position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from bigbatch.errors import Problem
from bigbatch.position import Position
from bigbatch.schedules._check import not_negative, positive
from bigbatch.schedules._decay import Decay, constant
from bigbatch.schedules._warmup import gradual


@dataclass(frozen=True)
class Baseline:
    """What was tuned once, at one batch."""

    lr: float
    global_batch: int
    warmup_epochs: float = 0.0

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        positive("global_batch", self.global_batch)
        not_negative("warmup_epochs", self.warmup_epochs)


@dataclass(frozen=True)
class Peak:
    """What a scaling rule makes of a baseline at another batch: the learning rate to reach, and the way up."""

    lr: float
    warmup_epochs: float = 0.0
    warmup_from: float = 0.0  # the learning rate at epoch 0
    warmup: Literal["gradual", "constant"] = "gradual"

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        not_negative("warmup_epochs", self.warmup_epochs)
        not_negative("warmup_from", self.warmup_from)
        if self.warmup == "constant" and self.warmup_from == 0 and self.warmup_epochs > 0:
            raise Problem("warmup_from is 0 in a constant warm-up, which would learn nothing: give a lr above 0")


Rule = Callable[[Baseline, int], Peak]


@dataclass(frozen=True)
class Schedule:
    """`Schedule(legw, Baseline(...), polynomial())` is a function from a position to a learning rate.

    It remembers nothing, so a resume is exact. Where the batch changes during a training, the lr is the one that
    a training with the batch of the moment would have at this position.
    """

    rule: Rule
    baseline: Baseline
    decay: Decay = field(default_factory=constant)

    def __call__(self, position: Position) -> float:
        peak = self.rule(self.baseline, position.global_batch)
        if peak.warmup_epochs > position.total_epochs:
            raise Problem(
                f"warmup_epochs is {peak.warmup_epochs:g} at global batch {position.global_batch}, longer than the "
                f"training of {position.total_epochs:g} epochs: shorten the baseline's warm-up or train longer"
            )
        if position.epochs >= peak.warmup_epochs:
            return peak.lr * self.decay.factor(position.epochs, position.total_epochs, peak.warmup_epochs)
        if peak.warmup == "constant":
            return peak.warmup_from
        return gradual(position.epochs, peak.warmup_epochs, peak.warmup_from, peak.lr)


class Run(Protocol):
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
