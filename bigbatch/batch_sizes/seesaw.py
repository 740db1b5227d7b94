"""Seesaw: where the learning rate would fall to 1/α, it falls to 1/√α and the batch grows α-fold (Meterez et al. 2025).

arXiv 2510.14717: for SGD whose noise dominates, and for Adam, the loss after as many samples stays, in fewer steps.
"""

from __future__ import annotations

from dataclasses import replace
from math import floor, log, sqrt

from pydantic import Field

from bigbatch.batch_sizes import History, increase
from bigbatch.position import Position
from bigbatch.schedules.curves.plan import schedule_lr
from bigbatch.schedules.curves.schedule import ScheduledRun

largest = increase.largest


class Config(increase.Config):
    """`decay` is the decay to replace: set it here and not in the schedule. `alpha` is α."""

    alpha: float = Field(2.0, gt=1)


def at(position: Position, history: History, config: Config) -> int:
    """Return the start times α for each time that the decay has fallen by α, at most the maximum."""
    remaining = config.decay.factor(position.epochs, position.total_epochs)
    if config.start >= config.maximum * remaining:
        return config.maximum
    falls = floor(-log(remaining) / log(config.alpha) + 1e-9)  # a half is one fall by two, whatever its rounding
    return min(round(config.start * config.alpha**falls), config.maximum)


def lr(position: Position, run: ScheduledRun) -> float:
    """Return the schedule's learning rate at the starting batch over the root of the growth.

    At the largest batch the decay goes on as usual, from where it is by then.
    """
    options: Config = run.global_batch
    growth = position.global_batch / options.start
    remaining = 1 / growth
    if position.global_batch >= options.maximum:
        remaining = min(options.decay.factor(position.epochs, position.total_epochs), remaining)
    return schedule_lr(replace(position, global_batch=options.start), run) * remaining * sqrt(growth)
