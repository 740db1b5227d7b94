"""Before figures are reproduced: how many tasks they have, how many are done, how many hours the others take here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bigbatch import datasets
from bigbatch.errors import Problem
from bigbatch.papers.catalog import find_figure
from bigbatch.papers.records import Scale
from bigbatch.papers.reproduction import Place, as_point
from bigbatch.papers.tasks import FilteredTraining, Task, run_of
from bigbatch.run import Run
from bigbatch.sweeps import WorkerOptions
from bigbatch.sweeps.plan import estimate_time

_IMAGENET_TRAIN, _IMAGENET_TEST = 1_281_167, 50_000
_TRIAL_BATCH = 8


@dataclass(frozen=True)
class FigurePlan:
    """What a figure still costs on this machine. Tasks that figures share are counted in each of them."""

    figure: str
    tasks: int
    done: int
    hours_done: float
    hours_left: float  # of trainings, one at a time; probes and filters take minutes


def plan(figures: Sequence[str], scale: Scale, out: Path, options: WorkerOptions) -> tuple[list[FigurePlan], float]:
    """Return the plan of each figure, and the hours of all that is left, shared tasks counted once.

    Each kind of training that is left is timed for a few seconds.
    """
    place = Place(out / scale, options)
    tasks = {name: _list_tasks(name, scale) for name in figures}
    left = {task.hash: task for task in place.list_left(task for found in tasks.values() for task in found.values())}
    hours = _estimate_hours(list(left.values()), place)
    plans = []
    for name, found in tasks.items():
        records = [record for task in found.values() if (record := place.record(task))]
        own = {task.hash for task in place.list_left(found.values())}  # with the networks that its filters need
        hours_done = sum(record.seconds for record in records) / 3600
        plans.append(FigurePlan(name, len(found), len(records), hours_done, sum(hours.get(one, 0) for one in own)))
    return plans, sum(hours.values())


def _list_tasks(name: str, scale: Scale) -> dict[str, Task]:
    return {task.hash: task for case in find_figure(name).runs(scale).values() for task in case}


def _estimate_hours(tasks: Sequence[Task], place: Place) -> dict[str, float]:
    """Return hours by task. What a filter would drop is trained on too: the estimate is a little high."""
    trainings = {task.hash: run_of(task) for task in tasks if isinstance(task, Run | FilteredTraining)}
    known = {key: run for key, run in trainings.items() if _has_data(run, place)}
    seconds: dict[str, float] = {}
    if known:
        for kind in estimate_time([as_point(run) for run in known.values()], place.folder, place.options).kinds:
            seconds |= dict.fromkeys(kind.hashes, kind.seconds_per_run)
    hours = {key: seconds[run.hash] / 3600 for key, run in known.items()}
    unknown = {key: run for key, run in trainings.items() if key not in known}
    return hours | {key: _estimate_without_images(run, place) for key, run in unknown.items()}


def _has_data(run: Run, place: Place) -> bool:
    """Whether a folder of images is there. Other datasets are downloaded where they are missing."""
    if run.dataset.name != "imagefolder":
        return True
    try:
        datasets.load(run.dataset, place.options.data_dir)
    except Problem:
        return False
    return True


def _estimate_without_images(run: Run, place: Place) -> float:
    """Return hours on ImageNet, from a few steps on random images of its size."""
    shape = (3, *[run.dataset.size] * 2)  # type: ignore[attr-defined]
    images = {"name": "synthetic", "sample_shape": shape, "classes": 1000, "samples": 2 * _TRIAL_BATCH}
    trial = {"dataset": images, "global_batch": _TRIAL_BATCH, "epochs": None, "steps": 2, "schedule": "constant"}
    small = Run(**(run.model_dump(mode="json") | trial | {"micro_batch": _TRIAL_BATCH, "batchnorm_group": "auto"}))
    (kind,) = estimate_time([as_point(small)], place.folder, place.options).kinds
    samples = _IMAGENET_TRAIN + _IMAGENET_TEST / 3  # a forward pass is a third of a step
    return (run.epochs or 1) * samples * kind.seconds_per_step / _TRIAL_BATCH / 3600
