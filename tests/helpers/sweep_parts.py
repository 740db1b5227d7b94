"""A tiny sweep, parts that tell when they are trained, and workers in processes of their own."""

from __future__ import annotations

import csv
import io
import os
import time
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import torch

from bigbatch.datasets import Dataset
from bigbatch.datasets.reading.images import Augment, InMemoryImages
from bigbatch.run import Run
from bigbatch.sweeps import RunResult, SweepPoint

TIMES = ("seconds", "samples_per_second")


def tiny() -> Dataset:
    """Three classes of 96 4 x 4 images: nothing to import, and trained in a moment."""
    generator = torch.Generator().manual_seed(5)
    labels = torch.arange(96) % 3
    images = torch.randint(0, 120, (96, 1, 4, 4), generator=generator, dtype=torch.uint8)
    images[torch.arange(96), 0, labels, labels] = 255
    plain = Augment(mean=(0.0,), std=(1.0,))
    return Dataset(
        train=InMemoryImages(images[:72], labels[:72], plain),
        test=InMemoryImages(images[72:], labels[72:], plain),
        classes=("a", "b", "c"),
        sample_shape=(1, 4, 4),
        hash="tiny",
    )


class ToldSGD(torch.optim.SGD):
    """Appends a line to the file `told` when it is made, then waits until `gate` can be read (a FIFO blocks)."""

    def __init__(self, params: Any, lr: float, told: str, gate: str | None = None) -> None:
        super().__init__(params, lr=lr)
        with open(told, "a") as file:
            file.write(f"{os.getpid()}\n")
        if gate is not None:
            Path(gate).read_text()


class KillingSGD(torch.optim.SGD):
    """At its second step, once for every `mark`, kills with SIGKILL: the worker, and itself where `itself`."""

    def __init__(self, params: Any, lr: float, victim: str, itself: bool = False) -> None:
        super().__init__(params, lr=lr)
        self.victim, self.itself, self.taken = Path(victim), itself, 0

    def step(self, closure: Any = None) -> Any:
        self.taken += 1
        if self.taken == 2 and self.victim.exists():
            worker = int(self.victim.read_text())
            self.victim.unlink()
            os.kill(worker, 9)
            if self.itself:
                os.kill(os.getpid(), 9)
        return super().step(closure)


class SlowingSGD(torch.optim.SGD):
    """From a step on, each takes 50 ms."""

    def __init__(self, params: Any, lr: float, at_step: int) -> None:
        super().__init__(params, lr=lr)
        self.at_step, self.taken = at_step, 0

    def step(self, closure: Any = None) -> Any:
        self.taken += 1
        if self.taken > self.at_step:
            time.sleep(0.05)
        return super().step(closure)


class UnevenSGD(torch.optim.SGD):
    """Two steps of three take 20 ms: the fastest says nothing about a training."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr=lr)
        self.taken = 0

    def step(self, closure: Any = None) -> Any:
        self.taken += 1
        if self.taken % 3:
            time.sleep(0.02)
        return super().step(closure)


def slow_to_load() -> Dataset:
    """The same images, half a second later."""
    time.sleep(0.5)
    return tiny()


class Told:
    """The reading end of the FIFO that ToldSGD writes to."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self._file = os.open(path, os.O_RDWR)  # a writer of our own: there is no end to it while nobody else writes

    def trainer(self) -> int:
        """The process of the next training that begins; waits for it."""
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self._file, 1)
        return int(line)

    def rest(self) -> int:
        """How many more have begun by now."""
        os.set_blocking(self._file, False)
        count = 0
        while True:
            try:
                self.trainer()
                count += 1
            except BlockingIOError:
                return count


def tiny_run(**fields: Any) -> Run:
    about: dict[str, Any] = {
        "name": "tiny",
        "dataset": "sweep_parts:tiny",
        "model": "mlp",
        "global_batch": 12,
        "micro_batch": 12,
        "optimizer": {"name": "sgd", "lr": 0.05},
        "epochs": 2,
    }
    return Run(**(about | fields))


def table(text: str) -> list[dict[str, str]]:
    """table.csv without what no two trainings have in common."""
    rows = list(csv.DictReader(io.StringIO(text)))
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def trained_alone(points: list[SweepPoint], folder: Path) -> list[RunResult]:
    """What ordinary trainings, one after another in this process, make of the points."""
    from bigbatch.sweeps.results import read_result
    from bigbatch.training.loop import train

    for point in points:
        train(point.run, runs_dir=folder / "runs")
    return [read_result(point, folder / "runs") for point in points]


def in_a_process(work: Any, *arguments: Any) -> int:
    """The number of a forked process that runs this and ends with 0, or 1 where it raises."""
    pid = os.fork()
    if pid:
        return pid
    forkserver._forkserver.__init__()  # the parent's server belongs to the parent
    code = 1
    try:
        work(*arguments)
        code = 0
    finally:
        os._exit(code)


def ended_in(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def row(batch, value, seed=0, lr=0.1, status="done", metric="test_accuracy", variant="", crossings=None):
    return RunResult(
        variant=variant,
        settings={"global_batch": batch, "optimizer.lr": lr},
        seed=seed,
        global_batch=batch,
        lr=lr,
        status=status,
        metric=metric,
        value=value,
        folder=Path(f"runs/run-{batch}-{lr}-{seed}"),
        hash_without_batch=f"{variant} {lr}",
        summary={"samples": 6000} | ({} if value is None else {metric: value}) | (crossings or {}),
    )


def seeds(batch, *values, **about):
    return [row(batch, value, seed, **about) for seed, value in enumerate(values)]
