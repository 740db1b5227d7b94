"""A run's schedule: asked for a learning rate, drawn and checked before anything is trained."""

from __future__ import annotations

from typing import NamedTuple

from bigbatch import batch_sizes, parts
from bigbatch.position import Position
from bigbatch.schedules._schedule import Run


def lr(position: Position, run: Run) -> float:
    """The learning rate of the batch at `position`.

    A batch size that changes batch and learning rate together (stages with a lr, growth in the place of decay) offers
    `lr(position, run)` like a schedule and is asked in its place; it asks `scheduled` for what it leaves alone.
    """
    batch_size = parts.find("batch_sizes", run.global_batch.name)
    if hasattr(batch_size, "lr"):
        return batch_size.lr(position, run)
    return scheduled(position, run)


def scheduled(position: Position, run: Run) -> float:
    """The learning rate that the schedule alone gives, for the global batch of `position`."""
    return parts.find("schedules", run.schedule.name).lr(position, run)


class Point(NamedTuple):
    """One point of a plan."""

    epochs: float
    lr: float
    global_batch: int


def curve(run: Run, total_epochs: float, points: int = 200) -> list[Point]:
    """Rate and global batch at the middle of each of `points` equal pieces of the training.

    A batch size that is driven by measurements is drawn as it would be without any.
    """
    return [_planned(total_epochs * (piece + 0.5) / points, total_epochs, run) for piece in range(points)]


def _planned(epochs: float, total_epochs: float, run: Run) -> Point:
    anywhere = Position(epochs, total_epochs, global_batch=0)  # the batch is what is being asked for
    global_batch = batch_sizes.at(anywhere, (), run.global_batch)
    return Point(epochs, lr(Position(epochs, total_epochs, global_batch), run), global_batch)


def check(run: Run, total_epochs: float) -> None:
    """Raise the Problem now that the training would meet on its way, such as a warm-up longer than itself."""
    curve(run, total_epochs)
    lr(Position(0.0, total_epochs, batch_sizes.largest(run.global_batch)), run)
