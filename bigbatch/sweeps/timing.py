"""About how long the runs of a sweep take, from a few seconds of each kind of training, on the disk they will be on."""

from __future__ import annotations

import importlib
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbatch.errors import Diverged
from bigbatch.run import Run
from bigbatch.sweeps.asked import Point
from bigbatch.sweeps.forks import Forks, slow_imports
from bigbatch.sweeps.preflight import fields_of

if TYPE_CHECKING:
    from bigbatch.training.loop import Training

_SECONDS_OF_STEPS = 2.0  # for each kind, besides the first step
_SECONDS_OF_EPOCH_ENDS = 0.5


@dataclass(frozen=True)
class Timed:
    """What one kind of run takes on this machine."""

    global_batch: int
    runs: int  # that are left
    steps: int
    epoch_ends: int
    seconds_to_begin: float  # a process, its data and model, and what the first step takes longer than others
    seconds_per_step: float
    seconds_per_epoch_end: float  # a test and a checkpoint

    @property
    def seconds_per_run(self) -> float:
        in_epochs = self.steps * self.seconds_per_step + self.epoch_ends * self.seconds_per_epoch_end
        return self.seconds_to_begin + in_epochs


@dataclass(frozen=True)
class Estimate:
    seconds_to_start: float  # of the process that imports everything once, for all runs
    kinds: list[Timed]

    def seconds(self, jobs: int) -> float:
        """For everything, `jobs` at once: as if runs could be divided, but not less than the longest of them."""
        if not self.kinds:
            return 0.0
        all_runs = sum(kind.runs * kind.seconds_per_run for kind in self.kinds)
        return self.seconds_to_start + max(all_runs / jobs, *(kind.seconds_per_run for kind in self.kinds))


def estimated(points: Sequence[Point], threads: int, folder: Path, data_dir: Path | None) -> Estimate:
    """Train each kind of run for about three seconds; nothing of it is kept but the micro-batch 'auto'."""
    import torch

    kinds: dict[str, list[Point]] = {}
    for point in points:
        kinds.setdefault(json.dumps(_kind(point.run), sort_keys=True), []).append(point)
    if not kinds:
        return Estimate(0.0, [])
    datasets = sorted({_dataset(point.run) for point in points})
    for name in slow_imports(datasets):  # runs of a sweep find them imported
        importlib.import_module(name)
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(prefix=".plan-", dir=_nearest(folder)) as scratch:
        try:
            start, process = _seconds_of_processes(threads, datasets, Path(scratch))
            timed = [_timed(alike, process, Path(scratch) / str(n), data_dir) for n, alike in enumerate(kinds.values())]
        finally:
            torch.set_num_threads(threads_before)
    return Estimate(start, timed)


def _kind(run: Run) -> dict[str, object]:
    """What decides how long a step takes. Schedules, seeds and learning rates do not."""
    names = ("dataset", "filter", "model", "global_batch", "micro_batch", "batchnorm_group", "selector", "dtype")
    return fields_of(run, (*names, "probes")) | {
        "optimizer": run.optimizer.name,
        "epochs": run.epochs,
        "steps": run.steps,
    }


def _dataset(run: Run) -> str:
    """Its name, or that of the one whose samples are held out."""
    fields = run.dataset.model_dump(mode="json")
    return fields.get("of", fields)["name"]


def _nearest(folder: Path) -> Path:
    """The folder or what is there of the way to it."""
    return next(path for path in (folder.resolve(), *folder.resolve().parents) if path.is_dir())


def _seconds_of_processes(threads: int, datasets: list[str], scratch: Path) -> tuple[float, float]:
    """(the process that imports, once; a process of each run)."""
    forks = Forks(threads, datasets)
    try:
        first, again = (_seconds(lambda: forks.wait(forks.start(["--version"], scratch / "log"))) for _ in range(2))
    finally:
        forks.close()
    return max(0.0, first - again), again


def _timed(points: Sequence[Point], seconds_of_process: float, scratch: Path, data_dir: Path | None) -> Timed:
    from bigbatch import engines, parts

    run = points[0].run
    engine = engines.start(parts.configure("engines", "local"))
    try:
        if run.micro_batch == "auto":
            _begun(run, engine, scratch / "auto", data_dir)[0].close()  # times sizes once, for all runs
        training, seconds_to_build = _begun(run, engine, scratch / "run", data_dir)
        try:
            first, *others = _steps(training)
            per_step = statistics.median(others or [first])
            per_epoch_end = statistics.median(_repeated(lambda: _end_of_epoch(training), _SECONDS_OF_EPOCH_ENDS))
            global_batch = training.global_batch
            epochs = training.counter.total_epochs(global_batch)
            epoch_samples = training.batches.epoch_samples(global_batch)
        finally:
            training.close()
    finally:
        engine.stop()
    return Timed(
        global_batch,
        len(points),
        run.steps or _steps_in(epochs, epoch_samples, global_batch),
        math.ceil(epochs),
        seconds_of_process + seconds_to_build + max(0.0, first - per_step),
        per_step,
        per_epoch_end,
    )


def _begun(run: Run, engine: Any, path: Path, data_dir: Path | None) -> tuple[Training, float]:
    """A training before its first step, and the seconds that took."""
    from bigbatch.artifacts.folder import Folder
    from bigbatch.training.loop import Training, TrainOptions

    started = time.perf_counter()
    folder = Folder(path)
    folder.create(run)
    return Training(run, folder, engine, TrainOptions(data_dir)), time.perf_counter() - started


def _steps(training: Training) -> list[float]:
    """Seconds of the first step, and of as many more as two seconds and the run's budget have room for."""
    times: list[float] = []
    with suppress(Diverged):  # at a learning rate that is to be tried; its steps take as long as others
        while not training.counter.budget_spent(training.progress, training.global_batch):
            times.append(_seconds(lambda: training.step(lambda: False, False)))
            if sum(times[1:]) > _SECONDS_OF_STEPS:
                break
    return times or [0.0]  # the first diverged, and the run with it


def _end_of_epoch(training: Training) -> None:
    from bigbatch.training.evaluate import evaluate

    evaluate(training)
    training.save()


def _steps_in(epochs: float, epoch_samples: int, global_batch: int) -> int:
    """Every epoch's last batch, however small, is a step."""
    whole_epochs = math.floor(epochs)
    rest = round((epochs - whole_epochs) * epoch_samples)
    return whole_epochs * math.ceil(epoch_samples / global_batch) + math.ceil(rest / global_batch)


def _repeated(work: Callable[[], object], seconds: float) -> list[float]:
    """How long it takes, each time, until about so many seconds are over."""
    times: list[float] = []
    while sum(times) < seconds:
        times.append(_seconds(work))
    return times


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
