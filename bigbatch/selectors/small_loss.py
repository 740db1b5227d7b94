"""Discard the fraction of a batch's samples with the smallest losses (Gao & Zhong 2020, section 3.1)."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

import torch
from pydantic import Discriminator, Field, Tag, field_validator
from torch import Tensor

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.position import Position
from bigbatch.selectors.discarding import discard_count

Divisor = Literal["kept", "all"]


class DiscardStage(parts.FrozenModel):
    """Holds from an epoch until the next stage begins."""

    from_epoch: float = Field(ge=0)
    discard: float = Field(ge=0, lt=1)


PAPER = (DiscardStage(from_epoch=0, discard=0.3), DiscardStage(from_epoch=100, discard=0.0))


def _discard_form(discard: Any) -> str:
    return "fraction" if isinstance(discard, int | float | str) else "stages"


# a fraction, 0.3 is 30 %, or stages; told apart first, so that an error names the right form
Discard = Annotated[
    Annotated[float, Tag("fraction")] | Annotated[tuple[DiscardStage, ...], Tag("stages")],
    Discriminator(_discard_form),
]


class Config(parts.Config):
    """The paper: 30 % for the first 100 epochs, then none. It does not say what it divides by."""

    discard: Discard = PAPER
    divisor: Divisor = "kept"  # "all" leaves the kept samples' gradients as they were; "kept" takes their mean
    scope: Literal["global", "rank"] = "global"  # smallest of the global batch, or of each rank's part
    # one: all graphs of a rank are kept until every loss is known, so its part of the batch must fit into memory;
    # two: a forward pass without gradients selects, and only the kept samples run again
    passes: Literal["one", "two"] = "one"

    @property
    def selects_in_one_pass(self) -> bool:  # type: ignore[override]
        return self.passes == "one"

    @property
    def selects_per_rank(self) -> bool:  # type: ignore[override]
        return self.scope == "rank"

    @field_validator("discard")
    @classmethod
    def _check_discard(cls, discard: float | tuple[DiscardStage, ...]) -> float | tuple[DiscardStage, ...]:
        if isinstance(discard, float):
            if not 0 <= discard < 1:
                raise ValueError("should be at least 0 and below 1, like 0.3 for 30 %")
            return discard
        starts = [stage.from_epoch for stage in discard]
        if not starts or starts[0] != 0 or any(later <= earlier for earlier, later in pairwise(starts)):
            raise ValueError(f"should begin with from_epoch 0 and increase, got {starts}")
        return discard


def discard_at(epochs: float, config: Config) -> float:
    """Return the fraction to discard at an epoch."""
    if isinstance(config.discard, float):
        return config.discard
    return [stage.discard for stage in config.discard if stage.from_epoch <= epochs][-1]


def weights(losses: Tensor, config: Config, position: Position) -> Tensor:
    """Return 0 for discarded samples, and for the others what the divisor asks for."""
    return small_loss(losses, discard_at(position.epochs, config), divisor=config.divisor)


def small_loss(losses: Tensor, discard: float, *, divisor: Divisor = "kept") -> Tensor:
    """Return one weight per sample, so that Σ wᵢ·lossᵢ / len(losses) is what to learn from.

    Of n losses the ⌊discard·n⌋ smallest get 0, among equal ones the first. The others get 1 where the divisor is
    `all`, n / kept where it is `kept`. A loss that is not finite is never discarded, so that it does not go unnoticed.
    """
    if losses.ndim != 1:
        raise Problem(f"losses has shape {tuple(losses.shape)}: give one loss per sample, as reduction='none' does")
    losses = losses.detach()
    count = discard_count(discard, len(losses))
    comparable = torch.where(losses.isfinite(), losses, torch.inf)
    discarded = comparable.sort(stable=True).indices[:count]
    kept_weight = len(losses) / (len(losses) - count) if divisor == "kept" and count else 1.0
    return torch.full_like(losses, kept_weight).index_fill_(0, discarded, 0.0)
