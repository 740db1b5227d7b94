"""A global batch, and if wanted a learning rate, for each stage of the training (Gao & Zhong 2020, section 3.2)."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator, model_serializer

from bigbatch import parts
from bigbatch.batch_sizes import History
from bigbatch.position import Position
from bigbatch.schedules import Run, scheduled


class Stage(BaseModel):
    """Holds from an epoch until the next stage begins, the last one until the end."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    from_epoch: float = Field(ge=0)
    global_batch: int = Field(gt=0)
    # None: the schedule decides. run.json keeps the earlier name, so that the hashes of finished runs hold.
    lr: float | None = Field(None, gt=0, validation_alias=AliasChoices("lr", "rate"))

    @model_serializer
    def _serialize_lr_as_rate(self) -> dict[str, Any]:
        return {"from_epoch": self.from_epoch, "global_batch": self.global_batch, "rate": self.lr}


class Config(parts.Config):
    """The paper: 512 at 0.005 for the first epoch, then 8192 at 0.05."""

    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]

    @field_validator("stages")
    @classmethod
    def _cover_the_run(cls, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        starts = [stage.from_epoch for stage in stages]
        if starts[0] != 0:
            raise ValueError(f"should begin with from_epoch 0, not {starts[0]:g}: the run's first epochs have no batch")
        if any(later <= earlier for earlier, later in pairwise(starts)):
            raise ValueError(f"should each have a later from_epoch than the one before, not {starts}")
        return stages


def at(position: Position, history: History, config: Config) -> int:
    """The batch of the stage that has begun last."""
    return _begun(position, config)[-1].global_batch


def largest(config: Config) -> int:
    """The largest of all stages."""
    return max(stage.global_batch for stage in config.stages)


def lr(position: Position, run: Run) -> float:
    """The stage's own lr in the place of the schedule's peak: not scaled, not warmed up, but decayed with it.

    A stage without a learning rate leaves it to the schedule.
    """
    begun = _begun(position, run.global_batch)
    # a batch that reaches over the start of a stage still belongs to the stage that it began in
    stage = next((stage for stage in reversed(begun) if stage.global_batch == position.global_batch), begun[-1])
    if stage.lr is None:
        return scheduled(position, run)
    decay = getattr(run.schedule, "decay", None)
    return stage.lr * (decay.factor(position.epochs, position.total_epochs) if decay else 1.0)


def _begun(position: Position, config: Config) -> list[Stage]:
    return [stage for stage in config.stages if stage.from_epoch <= position.epochs]
