"""Before a sweep runs: whether its runs can be trained at all."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

from bigbatch import batch_sizes, datasets, filters, schedules
from bigbatch.errors import Problem
from bigbatch.position import Position
from bigbatch.run import Run
from bigbatch.sweeps.asked import Point
from bigbatch.training.batches import Batches
from bigbatch.training.progress import EpochCounter


def check(points: Iterable[Point], data_dir: Path | None) -> None:
    """Refuse batches larger than the data and warm-ups longer than the training before anything is run."""
    loaded: dict[str, Batches] = {}
    for point in points:
        key = json.dumps(fields_of(point.run, ("dataset", "filter")), sort_keys=True)
        try:
            if key not in loaded:
                dataset = datasets.load(point.run.dataset, data_dir)
                kept = filters.kept_indices(point.run.filter, dataset)
                loaded[key] = Batches(dataset, point.run.seed, kept)
            _check(point.run, loaded[key])
        except Problem as problem:
            raise Problem(f"{point.label}: {problem}") from problem


def _check(run: Run, batches: Batches) -> None:
    batches.check(batch_sizes.largest(run.global_batch))
    first = batch_sizes.at(Position(0.0, run.epochs or math.inf, 0, 0, 0), [], run.global_batch)
    schedules.check(run, EpochCounter(run, batches).total_epochs(first))


def fields_of(run: Run, names: Iterable[str]) -> dict[str, object]:
    fields = run.model_dump(mode="json")
    return {name: fields[name] for name in names}
