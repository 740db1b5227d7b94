"""A global batch, and if wanted a learning rate, for each stage of the training (Gao & Zhong 2020, section 3.2)."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

from pydantic import AliasChoices, Field, field_validator, model_serializer

from bigbatch import parts
from bigbatch.batch_sizes import History
from bigbatch.position import Position
from bigbatch.schedules.curves.plan import schedule_lr
from bigbatch.schedules.curves.schedule import ScheduledRun


class BatchStage(parts.FrozenModel):
    """Holds from an epoch until the next stage begins, the last one until the end."""

    from_epoch: float = Field(ge=0)
    global_batch: int = Field(gt=0)
    # None: the schedule decides. run.json keeps the earlier name, so that the hashes of finished runs hold.
    lr: float | None = Field(None, gt=0, validation_alias=AliasChoices("lr", "rate"))

    @model_serializer
    def _serialize_lr_as_rate(self) -> dict[str, Any]:
        return {"from_epoch": self.from_epoch, "global_batch": self.global_batch, "rate": self.lr}


class Config(parts.Config):
    """The paper: 512 at 0.005 for the first epoch, then 8192 at 0.05."""

    sets_lr = True
    stages: Annotated[tuple[BatchStage, ...], Field(min_length=1)]

    @field_validator("stages")
    @classmethod
    def _check_starts(cls, stages: tuple[BatchStage, ...]) -> tuple[BatchStage, ...]:
        starts = [stage.from_epoch for stage in stages]
        if starts[0] != 0:
            raise ValueError(f"should begin with from_epoch 0, got {starts[0]:g}: add a stage for the first epochs")
        if any(later <= earlier for earlier, later in pairwise(starts)):
            raise ValueError(f"should have increasing values of from_epoch, got {starts}")
        return stages


def at(position: Position, history: History, config: Config) -> int:
    """Return the batch of the current stage."""
    return _stages_begun(position, config)[-1].global_batch


def largest(config: Config) -> int:
    """Return the largest batch of all stages."""
    return max(stage.global_batch for stage in config.stages)


def lr(position: Position, run: ScheduledRun) -> float:
    """Return the stage's own learning rate, neither scaled nor warmed up, times the decay of the schedule.

    Without one it is the schedule's.
    """
    begun = _stages_begun(position, run.global_batch)
    # a batch that reaches into the next stage belongs to the stage that it began in
    stage = next((stage for stage in reversed(begun) if stage.global_batch == position.global_batch), begun[-1])
    if stage.lr is None:
        return schedule_lr(position, run)
    decay = getattr(run.schedule, "decay", None)
    return stage.lr * (decay.factor(position.epochs, position.total_epochs) if decay else 1.0)


def _stages_begun(position: Position, config: Config) -> list[BatchStage]:
    return [stage for stage in config.stages if stage.from_epoch <= position.epochs]
