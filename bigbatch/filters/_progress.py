"""How far a station of the filter is: a bar with the time left on a terminal, timed lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol

_SECONDS_BETWEEN_LINES = 10.0
_shown: ContextVar[bool] = ContextVar("shown", default=False)  # a library is quiet unless a command speaks


class Advance(Protocol):
    """Told how much is done in all, and a word about it."""

    def __call__(self, done: int, about: str = "") -> None: ...


@contextmanager
def shown(show: bool) -> Iterator[None]:
    """Within it stations show their progress, or keep quiet."""
    token = _shown.set(show)
    try:
        yield
    finally:
        _shown.reset(token)


@contextmanager
def station(name: str, total: int) -> Iterator[Advance]:
    """One station of the pipeline; what it yields is told how much is done. Stations within it keep quiet."""
    if not _shown.get():
        yield _silent
        return
    with _bar(name, total) if sys.stderr.isatty() else nullcontext(_Lines(name, total)) as advance, shown(False):
        yield advance


def say(text: str) -> None:
    if _shown.get():
        print(text, file=sys.stderr, flush=True)


def _silent(done: int, about: str = "") -> None:
    pass


class _Lines:
    """For logs: a line every ten seconds and one at the end."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total = name, total
        self.started = self.last = time.monotonic()

    def __call__(self, done: int, about: str = "") -> None:
        now = time.monotonic()
        if now - self.last < _SECONDS_BETWEEN_LINES and done < self.total:
            return
        self.last = now
        seconds = now - self.started
        left = f"{seconds / done * (self.total - done):,.0f} s left" if 0 < done < self.total else f"{seconds:,.1f} s"
        print(f"{self.name}  {done:,}/{self.total:,}  {left}  {about}".rstrip(), file=sys.stderr, flush=True)


@contextmanager
def _bar(name: str, total: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(f"{name:<12}"), BarColumn(), TextColumn("{task.completed:,.0f}/{task.total:,.0f}"))
    about_columns = (TextColumn("{task.fields[about]}"), TimeRemainingColumn())
    with Progress(*columns, *about_columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total, about="")
        yield lambda done, about="": progress.update(task, completed=done, about=about)
