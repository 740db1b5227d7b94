"""A run's learning rate at a position, and its plan over the whole training, checked before anything is trained."""

from __future__ import annotations

from typing import NamedTuple

from bigbatch import parts
from bigbatch.position import Position
from bigbatch.schedules.curves.schedule import ScheduledRun


def lr(position: Position, run: ScheduledRun) -> float:
    """Return the learning rate of the batch at `position`.

    A batch size whose Config has `sets_lr` (stages with a learning rate, growth in place of decay) offers
    `lr(position, run)` like a schedule and is used instead; it calls `schedule_lr` for what it leaves unchanged.
    """
    if run.global_batch.sets_lr:
        return float(parts.find("batch_sizes", run.global_batch.name).lr(position, run))
    return schedule_lr(position, run)


def schedule_lr(position: Position, run: ScheduledRun) -> float:
    """Return the learning rate of the schedule alone, for the global batch of `position`."""
    return float(parts.find("schedules", run.schedule.name).lr(position, run))


class PlanPoint(NamedTuple):
    """Learning rate and global batch at one point of a training."""

    epochs: float
    lr: float
    global_batch: int


def plan(run: ScheduledRun, total_epochs: float, points: int = 200) -> list[PlanPoint]:
    """Return learning rate and global batch at the middle of each of `points` equal parts of the training.

    A batch size that follows measurements is planned as it would be without any.
    """
    return [_plan_point(total_epochs * (index + 0.5) / points, total_epochs, run) for index in range(points)]


def _plan_point(epochs: float, total_epochs: float, run: ScheduledRun) -> PlanPoint:
    batch_size = parts.find("batch_sizes", run.global_batch.name)
    # a batch size does not read the position's own global batch
    global_batch = batch_size.at(Position(epochs, total_epochs, global_batch=0), (), run.global_batch)
    return PlanPoint(epochs, lr(Position(epochs, total_epochs, global_batch), run), global_batch)


def check_plan(run: ScheduledRun, total_epochs: float) -> None:
    """Raise the Problem that the training would meet later, such as a warm-up longer than the training."""
    plan(run, total_epochs)
    largest_batch = parts.find("batch_sizes", run.global_batch.name).largest(run.global_batch)
    lr(Position(0.0, total_epochs, largest_batch), run)
