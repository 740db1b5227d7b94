"""Before a sweep runs: whether its runs can be trained, and about how long they take on this machine and disk."""

from __future__ import annotations

import importlib
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from bigbatch import batch_sizes, datasets, engines, filters, parts, schedules
from bigbatch.artifacts.folder import Folder
from bigbatch.engines import Engine
from bigbatch.errors import Diverged, Problem
from bigbatch.launch.forkserver import preload_modules, start_command
from bigbatch.position import Position
from bigbatch.run import Run
from bigbatch.sweeps.config import SweepPoint
from bigbatch.sweeps.worker import WorkerOptions
from bigbatch.training.batches import Batches
from bigbatch.training.evaluate import evaluate
from bigbatch.training.loop import Training, TrainOptions
from bigbatch.training.progress import EpochCounter

_SECONDS_OF_STEPS = 2.0  # per kind of run, besides the first step
_SECONDS_OF_EPOCH_ENDS = 0.5
_LONGEST_SECONDS = 20.0  # a step or a test that takes longer than this is not run but computed from a few samples
_TRIAL_SAMPLES = 64
# what decides how long a step takes; schedules, seeds and learning rates do not
_TIMED_FIELDS = {"dataset", "filter", "model", "global_batch", "micro_batch", "batchnorm_group", "selector", "dtype"}


def check_points(points: Iterable[SweepPoint], data_dir: Path | None) -> None:
    """Refuse batches larger than the data and warm-ups longer than the training."""
    loaded: dict[str, Batches] = {}
    for point in points:
        run = point.run
        key = _fields_as_json(run, {"dataset", "filter"})
        try:
            if key not in loaded:
                dataset = datasets.load(run.dataset, data_dir)
                loaded[key] = Batches(dataset, run.seed, filters.kept_indices(run.filter, dataset))
            loaded[key].check(batch_sizes.largest(run.global_batch))
            first = batch_sizes.at(Position(0.0, run.epochs or math.inf, 0, 0, 0), [], run.global_batch)
            schedules.check_plan(run, EpochCounter(run, loaded[key]).total_epochs(first))
        except Problem as problem:
            raise Problem(f"{point.label}: {problem}") from problem


def _fields_as_json(run: Run, names: set[str]) -> str:
    return json.dumps(run.model_dump(mode="json", include=names), sort_keys=True)


@dataclass(frozen=True)
class RunTiming:
    """How long one kind of run takes on this machine."""

    global_batch: int
    runs: int  # that are left
    steps: int
    epoch_ends: int
    seconds_to_begin: float  # a process, its data and model, and what the first step takes longer than others
    seconds_per_step: float
    seconds_per_epoch_end: float  # a test and a checkpoint
    hashes: frozenset[str] = frozenset()  # of the runs
    cut: bool = False  # whether steps or tests take too long to be run here: times are lower bounds

    @property
    def seconds_per_run(self) -> float:
        in_epochs = self.steps * self.seconds_per_step + self.epoch_ends * self.seconds_per_epoch_end
        return self.seconds_to_begin + in_epochs


@dataclass(frozen=True)
class SweepEstimate:
    """How long all runs of a sweep take."""

    seconds_to_start: float  # of the fork server, once for all runs
    kinds: list[RunTiming]

    def seconds(self, jobs: int) -> float:
        """Return the time with `jobs` runs at once: as if runs could be divided, but at least that of the longest."""
        if not self.kinds:
            return 0.0
        all_runs = sum(kind.runs * kind.seconds_per_run for kind in self.kinds)
        return self.seconds_to_start + max(all_runs / jobs, *(kind.seconds_per_run for kind in self.kinds))


def estimate_time(points: Sequence[SweepPoint], folder: Path, options: WorkerOptions) -> SweepEstimate:
    """Train each kind of run for about three seconds; nothing of it is kept but the micro-batch 'auto'.

    A step that takes longer than twenty seconds is not run: its time is a lower bound then.
    """
    kinds: dict[str, list[SweepPoint]] = {}
    for point in points:
        budget = [point.run.optimizer.name, point.run.epochs, point.run.steps]
        key = f"{_fields_as_json(point.run, _TIMED_FIELDS | {'probes'})} {budget}"
        kinds.setdefault(key, []).append(point)
    if not kinds:
        return SweepEstimate(0.0, [])
    threads = options.threads_per_run
    names = sorted({_dataset_name(point.run) for point in points})
    for name in preload_modules(names):  # the runs of a sweep find them imported
        importlib.import_module(name)
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    nearest = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.is_dir())
    with tempfile.TemporaryDirectory(prefix=".plan-", dir=nearest) as scratch:
        try:
            first, again = (_time_process(Path(scratch) / "log", threads, names) for _ in range(2))
            timings = [
                _time_run(alike, again, Path(scratch) / str(number), options.data_dir)
                for number, alike in enumerate(kinds.values())
            ]
        finally:
            torch.set_num_threads(threads_before)
    return SweepEstimate(max(0.0, first - again), timings)


def _dataset_name(run: Run) -> str:
    """Return its name, or that of the dataset whose samples are held out."""
    fields = run.dataset.model_dump(mode="json")
    return str(fields.get("of", fields)["name"])


def _time_process(log: Path, threads: int, names: list[str]) -> float:
    return _time(lambda: start_command(["--version"], log, threads=threads, datasets=names).join())


def _time_run(
    points: Sequence[SweepPoint], seconds_per_process: float, scratch: Path, data_dir: Path | None
) -> RunTiming:
    run = points[0].run
    engine = engines.start(parts.configure("engines", "local"))
    try:
        if run.micro_batch == "auto":
            _build_training(run, engine, scratch / "auto", data_dir).close()  # times micro-batches once, for all runs
        started = time.perf_counter()
        training = _build_training(run, engine, scratch / "run", data_dir)
        seconds_to_build = time.perf_counter() - started
        try:
            global_batch = training.global_batch
            step_at_least, test_at_least = _least_seconds(training)
            times = _time_steps(training) if step_at_least < _LONGEST_SECONDS else [step_at_least]
            first, *others = times
            per_step = statistics.median(others or times)
            ends = _time_epoch_ends(training) if test_at_least < _LONGEST_SECONDS else [test_at_least]
            per_epoch_end = statistics.median(ends)
            epochs = training.counter.total_epochs(global_batch)
            epoch_samples = training.batches.epoch_samples(global_batch)
        finally:
            training.close()
    finally:
        engine.stop()
    return RunTiming(
        global_batch,
        len(points),
        run.steps or _count_steps(epochs, epoch_samples, global_batch),
        math.ceil(epochs),
        seconds_per_process + seconds_to_build + max(0.0, first - per_step),
        per_step,
        per_epoch_end,
        frozenset(point.hash for point in points),
        cut=max(step_at_least, test_at_least) >= _LONGEST_SECONDS,
    )


def _build_training(run: Run, engine: Engine, path: Path, data_dir: Path | None) -> Training:
    folder = Folder(path)
    folder.create(run)
    return Training(run, folder, engine, TrainOptions(data_dir))


def _least_seconds(training: Training) -> tuple[float, float]:
    """Lower bounds for a step and for a test, from a pass over a few samples: a forward pass is a third of both."""
    samples = min(_TRIAL_SAMPLES, training.split.micro_batch)
    per_sample = min(training.gradient.forward.time_trial(samples, training.global_batch) for _ in range(2)) / samples
    tests = 0 if training.dataset.task == "language" else len(training.dataset.test)
    return per_sample * training.global_batch, per_sample * tests / 3


def _time_steps(training: Training) -> list[float]:
    """Return the seconds of the first step, and of as many more as fit into two seconds and the run's budget."""
    times: list[float] = []
    with suppress(Diverged):  # the steps of a learning rate that diverges take as long as others
        while not training.counter.budget_spent(training.progress, training.global_batch):
            times.append(_time(lambda: training.step(lambda: False, False)))
            if sum(times[1:]) > _SECONDS_OF_STEPS:
                break
    return times or [0.0]  # the first step diverged


def _time_epoch_ends(training: Training) -> list[float]:
    def end_epoch() -> None:
        evaluate(training)
        training.save()

    times: list[float] = []
    while sum(times) < _SECONDS_OF_EPOCH_ENDS:
        times.append(_time(end_epoch))
    return times


def _count_steps(epochs: float, epoch_samples: int, global_batch: int) -> int:
    """Return the steps of a training; the last batch of every epoch, however small, is a step."""
    whole_epochs = math.floor(epochs)
    rest = round((epochs - whole_epochs) * epoch_samples)
    return whole_epochs * math.ceil(epoch_samples / global_batch) + math.ceil(rest / global_batch)


def _time(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
