"""Schedules: the learning rate as a pure function of the position in the training.

A part offers `lr(position, run) -> float`, and `peak(run, global_batch) -> Peak` so that a scaling rule leaves alone
what the schedule scales. `run.optimizer.lr` is the lr tuned at the baseline's batch, or the peak itself where nothing
is scaled. In your own loop:

    schedule = Schedule(legw, Baseline(lr=0.1, global_batch=128, warmup_epochs=0.1), polynomial())
    scheduler = as_torch(schedule, optimizer, total_epochs=25, samples_per_epoch=60_000, global_batch=8192)

`legw`, `goyal` and `constant` name a function here and a file of this folder: the files are imported first, so
that a later import of one of them does not replace the function by the module.
`as_torch` imports torch when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bigbatch.schedules.constant  # noqa: F401 (see above: the file first, then the function)
from bigbatch.schedules.curves.decay import (
    Decay,
    constant,
    cosine,
    exponential,
    multi_step,
    polynomial,
    warmup_stable_decay,
)
from bigbatch.schedules.curves.plan import PlanPoint, check_plan, lr, plan, schedule_lr
from bigbatch.schedules.curves.schedule import Baseline, Peak, Scaling, Schedule, ScheduledRun, scale_lr
from bigbatch.schedules.goyal import goyal
from bigbatch.schedules.legw import legw

if TYPE_CHECKING:
    from bigbatch.schedules.curves.torch_scheduler import as_torch

__all__ = [
    "Baseline",
    "Decay",
    "Peak",
    "PlanPoint",
    "Scaling",
    "Schedule",
    "ScheduledRun",
    "as_torch",
    "check_plan",
    "constant",
    "cosine",
    "exponential",
    "goyal",
    "legw",
    "lr",
    "multi_step",
    "plan",
    "polynomial",
    "scale_lr",
    "schedule_lr",
    "warmup_stable_decay",
]


def __getattr__(name: str) -> Any:
    if name == "as_torch":
        from bigbatch.schedules.curves.torch_scheduler import as_torch

        return as_torch
    raise AttributeError(f"module 'bigbatch.schedules' has no attribute '{name}'")
