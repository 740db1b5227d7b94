"""What a person sees while a training runs: a progress bar on a terminal, timed lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol

_SECONDS_BETWEEN_LINES = 10.0


class Display(Protocol):
    def start(self, total_epochs: float, epochs: float) -> None: ...
    def step(self, row: dict[str, Any], samples_per_second: float) -> None: ...
    def evaluated(self, row: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


class Quiet:
    def start(self, total_epochs: float, epochs: float) -> None:
        pass

    def step(self, row: dict[str, Any], samples_per_second: float) -> None:
        pass

    def evaluated(self, row: dict[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


class Lines(Quiet):
    """For logs: a line an epoch, and one every ten seconds in between."""

    def start(self, total_epochs: float, epochs: float) -> None:
        self._total_epochs = total_epochs
        self._first_epochs = epochs
        self._started = self._last = time.monotonic()

    def step(self, row: dict[str, Any], samples_per_second: float) -> None:
        if time.monotonic() - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = time.monotonic()
        self._say(
            f"epoch {row['epoch']:.2f}/{self._total_epochs:g}  loss {row['train_loss']:.4f}  "
            f"{samples_per_second:,.0f} samples/s  {self._left(row['epoch'])}"
        )

    def evaluated(self, row: dict[str, Any]) -> None:
        self._last = time.monotonic()
        self._say(f"epoch {row['epoch']:g}/{self._total_epochs:g}  {format_measure(row)}")

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)

    def _left(self, epochs: float) -> str:
        done = epochs - self._first_epochs
        if done <= 0:
            return ""
        seconds = (time.monotonic() - self._started) / done * (self._total_epochs - epochs)
        return f"{seconds:,.0f} s left"


class Bar(Quiet):
    """For people: epoch, loss, accuracy, samples/s, time left."""

    def start(self, total_epochs: float, epochs: float) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("epoch {task.completed:.2f}/{task.total:g}"),
            BarColumn(),
            TextColumn("{task.fields[about]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("", total=total_epochs, about="")
        self._progress.update(self._task, completed=epochs)
        self._about = self._tested = ""
        self._progress.start()

    def step(self, row: dict[str, Any], samples_per_second: float) -> None:
        self._about = f"loss {row['train_loss']:.4f}  {samples_per_second:,.0f} samples/s  "
        self._progress.update(self._task, completed=row["epoch"], about=f"{self._about}{self._tested}")

    def evaluated(self, row: dict[str, Any]) -> None:
        self._tested = f"{format_measure(row)}  "
        self._progress.update(self._task, completed=row["epoch"], about=f"{self._about}{self._tested}", refresh=True)

    def close(self) -> None:
        if hasattr(self, "_progress"):
            self._progress.stop()


def format_measure(row: Mapping[str, Any]) -> str:
    """`test accuracy 98.33 %` or `test perplexity 115.9`."""
    if "test_perplexity" in row:
        return f"test perplexity {row['test_perplexity']:.2f}"
    return f"test accuracy {100 * row['test_accuracy']:.2f} %"


def choose(quiet: bool) -> Display:
    if quiet:
        return Quiet()
    return Bar() if sys.stderr.isatty() else Lines()
