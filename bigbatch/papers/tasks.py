"""What a figure is made from: trainings, probes of a first step, filters and trainings on what they keep.

A task has a `hash`, which names its record. A `Run` is the task of training it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from bigbatch.run import Run, fingerprint


@dataclass(frozen=True)
class Probing:
    """One probe at the first step of a run, which is not trained."""

    run: Run
    probe: dict[str, Any]  # its name and options

    @cached_property
    def hash(self) -> str:
        return fingerprint({"probed": self.run.to_dict(), "probe": self.probe})


@dataclass(frozen=True)
class Filtering:
    """The network filter on a run's dataset, by the features of a trained network."""

    run: Run  # trained first, unless there are weights of its model
    options: dict[str, Any] = field(default_factory=dict)
    weights: str | None = None  # a file in one of the data folders

    @cached_property
    def hash(self) -> str:
        return fingerprint({"filtered_by": self.run.to_dict(), "options": self.options, "weights": self.weights})


@dataclass(frozen=True)
class FilteredTraining:
    """A run on what a filter keeps, or on as many random samples of each class."""

    run: Run
    filtering: Filtering
    keep: Literal["network", "random"] = "network"

    @cached_property
    def hash(self) -> str:
        return fingerprint({"run": self.run.to_dict(), "filtering": self.filtering.hash, "keep": self.keep})


Task = Run | Probing | Filtering | FilteredTraining
Cases = dict[Any, Sequence[Task]]  # by the cell of the table or the point of the figure: a task per seed


def list_needs(task: Task) -> tuple[Task, ...]:
    """Return the tasks whose files this one reads."""
    if isinstance(task, FilteredTraining):
        return (task.filtering,)
    return (task.run,) if isinstance(task, Filtering) and task.weights is None else ()


def repeat(task: Run | Probing | FilteredTraining, seeds: int) -> list[Task]:
    """Return the task for the seeds 0, 1, ..."""
    runs = [run_of(task).with_settings([f"seed={seed}"]) for seed in range(seeds)]
    return [run if isinstance(task, Run) else replace(task, run=run) for run in runs]


def run_of(task: Task) -> Run:
    return task if isinstance(task, Run) else task.run
