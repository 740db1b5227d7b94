"""Sweeps: many runs of one recipe in different settings, each an ordinary run in its own folder.

results = sweep(run, "sweeps/mine", WorkerOptions(jobs=2), grids={"global_batch": (16, 512)}, seeds=3)
print(results.curves[0].note)
"""

from __future__ import annotations

from bigbatch.sweeps.analysis import BatchCurve, PreferredBatch, SeedGroup, SweepResults, analyze, group_by_setting
from bigbatch.sweeps.config import SearchConfig, SearchRange, SweepConfig, SweepPoint, parse_ranges
from bigbatch.sweeps.critical_batch import CriticalBatch
from bigbatch.sweeps.folder import Sweep, sweep
from bigbatch.sweeps.frontier import METHODS, Frontier, FrontierConfig, draw_curve, run_frontier
from bigbatch.sweeps.intervals import confidence_interval, format_mean, format_metric
from bigbatch.sweeps.results import RunResult
from bigbatch.sweeps.worker import WorkerOptions

__all__ = [
    "METHODS",
    "BatchCurve",
    "CriticalBatch",
    "Frontier",
    "FrontierConfig",
    "PreferredBatch",
    "RunResult",
    "SearchConfig",
    "SearchRange",
    "SeedGroup",
    "Sweep",
    "SweepConfig",
    "SweepPoint",
    "SweepResults",
    "WorkerOptions",
    "analyze",
    "confidence_interval",
    "draw_curve",
    "format_mean",
    "format_metric",
    "group_by_setting",
    "parse_ranges",
    "run_frontier",
    "sweep",
]
