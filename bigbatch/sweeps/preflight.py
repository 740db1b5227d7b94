"""Before a sweep runs: whether its runs can be trained at all, how many they are, and about how long they take."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bigbatch import batch_sizes, datasets, filters, parts, schedules
from bigbatch.batches import Batches
from bigbatch.clock import Clock
from bigbatch.errors import Problem
from bigbatch.position import Position
from bigbatch.run import Run
from bigbatch.sweeps.asked import Point

_TIMED_SECONDS = 2.0  # for each kind of step, besides one to warm up
_TIMED_STEPS = 5


def check(points: Iterable[Point], data_dir: Path | None) -> None:
    """Refuse batches larger than the data and warm-ups longer than the training before anything is run."""
    loaded: dict[str, Batches] = {}
    for point in points:
        key = json.dumps(_fields(point.run, ("dataset", "filter")), sort_keys=True)
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
    schedules.check(run, Clock(run, batches).total_epochs(first))


@dataclass(frozen=True)
class Timed:
    """What one kind of run takes on this machine."""

    global_batch: int
    seconds_per_step: float
    seconds_per_run: float
    runs: int  # that are left


def timed(points: Sequence[Point], threads: int, data_dir: Path | None) -> list[Timed]:
    """Time a few steps and a test of each distinct kind of run; nothing of it is kept but the micro-batch 'auto'."""
    import torch

    kinds: dict[str, list[Point]] = {}
    for point in points:
        kinds.setdefault(json.dumps(_kind(point.run), sort_keys=True), []).append(point)
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return [_timed(alike, data_dir) for alike in kinds.values()]
    finally:
        torch.set_num_threads(threads_before)


def _kind(run: Run) -> dict[str, object]:
    """What decides how long a step takes. Schedules, seeds and rates do not."""
    names = ("dataset", "filter", "model", "global_batch", "micro_batch", "batchnorm_group", "selector", "dtype")
    return _fields(run, names) | {"optimizer": run.optimizer.name, "epochs": run.epochs, "steps": run.steps}


def _fields(run: Run, names: Iterable[str]) -> dict[str, object]:
    fields = run.model_dump(mode="json")
    return {name: fields[name] for name in names}


def _timed(points: Sequence[Point], data_dir: Path | None) -> Timed:
    from bigbatch import engines
    from bigbatch.evaluate import evaluate
    from bigbatch.results import Folder
    from bigbatch.training import Training

    run = points[0].run
    engine = engines.start(parts.configure("engines", "local"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Folder(Path(scratch) / "run")
        folder.create(run)
        training = Training(run, folder, engine, data_dir, quiet=True)
        try:
            times: list[float] = []
            began = time.perf_counter()
            while len(times) < 2 or (len(times) < _TIMED_STEPS and time.perf_counter() - began < _TIMED_SECONDS):
                if training.clock.spent(training.progress, training.global_batch):
                    break
                started = time.perf_counter()
                training.step(lambda: False, False)
                times.append(time.perf_counter() - started)
            started = time.perf_counter()
            evaluate(training.model, training.dataset, engine, 2 * training.split.micro_batch, training.gradient.cast)
            seconds_of_test = time.perf_counter() - started
            global_batch = training.global_batch
            epochs = training.clock.total_epochs(global_batch)
            epoch_samples = training.batches.epoch_samples(global_batch)
        finally:
            training.close()
            engine.stop()
    seconds = min(times)  # other processes only ever add time
    steps = run.steps or epochs * epoch_samples / global_batch
    return Timed(global_batch, seconds, steps * seconds + math.ceil(epochs) * seconds_of_test, len(points))
