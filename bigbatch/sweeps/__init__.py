"""Sweeps: many runs that answer one question, each an ordinary run in a folder of its own. Files are the truth.

sweep = Sweep.ask(run, Path("sweeps/mine"), grids={"global_batch": (16, 512)}, seeds=3)
sweep.work(jobs=2)
print(sweep.answers().curves[0].note)
"""

from __future__ import annotations

from bigbatch.sweeps.answers import Answers, Curve, Group, Preferred, answers, format_group
from bigbatch.sweeps.asked import Asked, Point
from bigbatch.sweeps.intervals import confidence_interval, format_mean, format_metric
from bigbatch.sweeps.rows import Row
from bigbatch.sweeps.sweep import Sweep

__all__ = [
    "Answers",
    "Asked",
    "Curve",
    "Group",
    "Point",
    "Preferred",
    "Row",
    "Sweep",
    "answers",
    "confidence_interval",
    "format_group",
    "format_mean",
    "format_metric",
]
