"""The progress of a training, and of the stages of other long computations, on the terminal.

A bar on a terminal, timed lines elsewhere, or nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol

from bigbatch.output.terminal import guarded_stderr

_SECONDS_BETWEEN_LINES = 10.0

_is_shown: ContextVar[bool] = ContextVar("is_shown", default=False)  # hidden unless a command shows it

Measures = Mapping[str, float]  # by name: epoch, train_loss, test_accuracy ...


class ProgressDisplay:
    """Shows nothing; its subclasses do."""

    def start(self, total_epochs: float, epochs: float) -> None:
        """Begin at `epochs` of `total_epochs`."""

    def show_step(self, row: Measures, samples_per_second: float) -> None:
        """Show the metrics of a training step."""

    def show_evaluation(self, row: Measures) -> None:
        """Show the metrics of an evaluation."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class LogLines(ProgressDisplay):
    """For logs: one line per evaluation, and one every ten seconds in between."""

    def __init__(self) -> None:
        self._stream = guarded_stderr()

    def start(self, total_epochs: float, epochs: float) -> None:
        self._total_epochs = total_epochs
        self._first_epochs = epochs
        self._start_time = self._last_line_time = time.monotonic()

    def show_step(self, row: Measures, samples_per_second: float) -> None:
        if time.monotonic() - self._last_line_time < _SECONDS_BETWEEN_LINES:
            return
        self._print_line(
            f"epoch {row['epoch']:.2f}/{self._total_epochs:g}  loss {row['train_loss']:.4f}  "
            f"{samples_per_second:,.0f} samples/s  {self._format_time_left(row['epoch'])}"
        )

    def show_evaluation(self, row: Measures) -> None:
        self._print_line(f"epoch {row['epoch']:g}/{self._total_epochs:g}  {format_measure(row)}")

    def _print_line(self, text: str) -> None:
        self._last_line_time = time.monotonic()
        print(f"{time.strftime('%H:%M:%S')}  {text}", file=self._stream, flush=True)

    def _format_time_left(self, epochs: float) -> str:
        done = epochs - self._first_epochs
        if done <= 0:
            return ""
        seconds = (time.monotonic() - self._start_time) / done * (self._total_epochs - epochs)
        return f"{seconds:,.0f} s left"


class ProgressBar(ProgressDisplay):
    """For terminals: epoch, loss, accuracy, samples/s, time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("epoch {task.completed:.2f}/{task.total:g}"),
            BarColumn(),
            TextColumn("{task.fields[about]}"),
            TimeRemainingColumn(),
            console=Console(file=guarded_stderr()),
        )
        self._step_text = self._evaluation_text = ""

    def start(self, total_epochs: float, epochs: float) -> None:
        self._task = self._progress.add_task("", total=total_epochs, about="")
        self._progress.update(self._task, completed=epochs)
        self._progress.start()

    def show_step(self, row: Measures, samples_per_second: float) -> None:
        self._step_text = f"loss {row['train_loss']:.4f}  {samples_per_second:,.0f} samples/s  "
        self._update(row["epoch"])

    def show_evaluation(self, row: Measures) -> None:
        self._evaluation_text = f"{format_measure(row)}  "
        self._update(row["epoch"], refresh=True)

    def _update(self, epochs: float, refresh: bool = False) -> None:
        about = self._step_text + self._evaluation_text
        self._progress.update(self._task, completed=epochs, about=about, refresh=refresh)

    def close(self) -> None:
        self._progress.stop()


def format_measure(row: Measures) -> str:
    """Format the result of an evaluation: `test accuracy 98.33 %` or `test perplexity 115.9`."""
    if "test_perplexity" in row:
        return f"test perplexity {row['test_perplexity']:.2f}"
    return f"test accuracy {100 * row['test_accuracy']:.2f} %"


def choose_display(quiet: bool) -> ProgressDisplay:
    """Return a bar for a terminal, lines for a log, or nothing if `quiet`."""
    if quiet:
        return ProgressDisplay()
    return ProgressBar() if sys.stderr.isatty() else LogLines()


class Advance(Protocol):
    """Called with how much of a stage is done in all, and a note about it."""

    def __call__(self, done: int, about: str = "") -> None: ...


@contextmanager
def show_progress(show: bool) -> Iterator[None]:
    """Show the progress of stages within the block, or hide it."""
    token = _is_shown.set(show)
    try:
        yield
    finally:
        _is_shown.reset(token)


@contextmanager
def stage(name: str, total: int) -> Iterator[Advance]:
    """One stage of a computation; call what it yields with how much is done. Stages within it are not shown."""
    if not _is_shown.get():
        yield _ignore_progress
        return
    with (
        _stage_bar(name, total) if sys.stderr.isatty() else nullcontext(_StageLines(name, total)) as advance,
        show_progress(False),
    ):
        yield advance


def log_progress(text: str) -> None:
    """Print a line to stderr where progress is shown."""
    if _is_shown.get():
        print(text, file=guarded_stderr(), flush=True)


def _ignore_progress(done: int, about: str = "") -> None:
    pass


class _StageLines:
    """For logs: a line every ten seconds and one at the end."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.stream = name, total, guarded_stderr()
        self.started = self.last = time.monotonic()

    def __call__(self, done: int, about: str = "") -> None:
        now = time.monotonic()
        if now - self.last < _SECONDS_BETWEEN_LINES and done < self.total:
            return
        self.last = now
        seconds = now - self.started
        left = f"{seconds / done * (self.total - done):,.0f} s left" if 0 < done < self.total else f"{seconds:,.1f} s"
        print(f"{self.name}  {done:,}/{self.total:,}  {left}  {about}".rstrip(), file=self.stream, flush=True)


@contextmanager
def _stage_bar(name: str, total: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(f"{name:<12}"), BarColumn(), TextColumn("{task.completed:,.0f}/{task.total:,.0f}"))
    about_columns = (TextColumn("{task.fields[about]}"), TimeRemainingColumn())
    with Progress(*columns, *about_columns, console=Console(file=guarded_stderr())) as progress:
        task = progress.add_task("", total=total, about="")
        yield lambda done, about="": progress.update(task, completed=done, about=about)
