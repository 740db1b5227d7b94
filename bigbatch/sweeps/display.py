"""What a person sees while a sweep runs: a live table on a terminal, timed lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bigbatch.sweeps.answers import Group, format_group
from bigbatch.sweeps.asked import Point
from bigbatch.sweeps.child import Child

_SECONDS_BETWEEN_LINES = 60.0
_SECONDS_BETWEEN_TABLES = 0.5


class Display:
    """Says nothing, but knows how far things are. `best` gives the best group so far and what it is measured in."""

    def __init__(self, total: int, best: Callable[[], tuple[Group | None, str]]) -> None:
        self.total = total
        self.waits = False  # for other workers
        self.finished_points = 0
        self._best = best
        self._best_text = ""
        self._began: tuple[float, float] | None = None  # clock, points done

    def started(self, point: Point) -> None:
        pass

    def finished(self, child: Child) -> None:
        group, measure = self._best()
        self._best_text = f"best {format_group(group, measure)}: {group.label}" if group else ""

    def tick(self, children: Sequence[Child]) -> None:
        pass

    def close(self) -> None:
        pass

    def done(self, children: Sequence[Child]) -> float:
        """Points, those under way by their share."""
        done = self.finished_points + sum(child.share_done() for child in children)
        if self._began is None:
            self._began = (time.monotonic(), done)
        return done

    def left(self, done: float) -> str:
        """`12 min left`, from how fast points became done since we began."""
        began, done_before = self._began or (time.monotonic(), done)
        if done - done_before < 1e-3:
            return "time left unknown yet"
        return f"{duration((self.total - done) * (time.monotonic() - began) / (done - done_before))} left"


class Lines(Display):
    """For logs: a line when a run begins and ends, and one a minute."""

    _said = 0.0

    def started(self, point: Point) -> None:
        self._say(f"begins: {point.label}, seed {point.seed}")

    def finished(self, child: Child) -> None:
        super().finished(child)
        self._say(f"ends: {child.last_line()}")

    def tick(self, children: Sequence[Child]) -> None:
        if time.monotonic() - self._said < _SECONDS_BETWEEN_LINES and self._said:
            return
        self._said = time.monotonic()
        done = self.done(children)
        running = ", ".join(f"{child.point.label} {100 * child.share_done():.0f} %" for child in children)
        running = running or ("waits for other workers" if self.waits else "")
        self._say("  ".join(filter(None, [f"{done:.1f}/{self.total}", self.left(done), self._best_text, running])))

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


class Table(Display):
    """For people: what runs, how far it is, what is left, what is best."""

    _live: Any = None
    _drawn = 0.0

    def tick(self, children: Sequence[Child]) -> None:
        if time.monotonic() - self._drawn < _SECONDS_BETWEEN_TABLES:
            return
        self._drawn = time.monotonic()
        from rich.console import Console
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(self._table(children), refresh=True)

    def _table(self, children: Sequence[Child]) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table as RichTable

        done = self.done(children)
        about = "  ".join(filter(None, [f"{done:.1f} of {self.total} runs", self.left(done), self._best_text]))
        table = RichTable("run", "seed", "", "", title=about, box=None, title_justify="left")
        for child in children:
            share = child.share_done()
            bar = ProgressBar(total=1.0, completed=share, width=30)
            table.add_row(child.point.label, str(child.point.seed), bar, f"{100 * share:.0f} %")
        if self.waits:
            table.add_row("waits for other workers", "", "", "")
        return table

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def choose(quiet: bool, total: int, best: Callable[[], tuple[Group | None, str]]) -> Display:
    kind = Display if quiet else Table if sys.stderr.isatty() else Lines
    return kind(total, best)


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
