"""Schedules: the learning rate as a pure function of where the training stands.

A part offers `lr(position, run) -> float`. `run.optimizer.lr` is the lr tuned at the baseline's batch, or the
peak itself where nothing is scaled. In one's own loop:

    schedule = Schedule(legw, Baseline(lr=0.1, global_batch=128, warmup_epochs=0.1), polynomial())
    scheduler = as_torch(schedule, optimizer, total_epochs=25, samples_per_epoch=60_000, global_batch=8192)

`legw`, `goyal` and `constant` name a function here and a file of this folder: the files are imported first, so
that a later import of one of them cannot put the module in the function's place.
torch is imported with `as_torch`, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bigbatch.schedules.constant  # noqa: F401 (see above: the file first, then the function)
from bigbatch.schedules._decay import Decay, constant, cosine, exponential, multi_step, polynomial
from bigbatch.schedules._of_run import Point, check, curve, lr, scheduled
from bigbatch.schedules._scaling import Scaling, scaled
from bigbatch.schedules._schedule import Baseline, Peak, Run, Schedule
from bigbatch.schedules.goyal import goyal
from bigbatch.schedules.legw import legw

if TYPE_CHECKING:
    from bigbatch.schedules._as_torch import as_torch

__all__ = [
    "Baseline",
    "Decay",
    "Peak",
    "Point",
    "Run",
    "Scaling",
    "Schedule",
    "as_torch",
    "check",
    "constant",
    "cosine",
    "curve",
    "exponential",
    "goyal",
    "legw",
    "lr",
    "multi_step",
    "polynomial",
    "scaled",
    "scheduled",
]


def __getattr__(name: str) -> Any:
    if name == "as_torch":
        from bigbatch.schedules._as_torch import as_torch

        return as_torch
    raise AttributeError(f"module 'bigbatch.schedules' has no attribute '{name}'")
