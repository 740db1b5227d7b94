"""The progress of a sweep: a live table on a terminal, timed lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from bigbatch.output.formatting import format_duration
from bigbatch.sweeps.analysis import SweepResults
from bigbatch.sweeps.config import SweepPoint

_SECONDS_BETWEEN_LINES = 60.0
_SECONDS_BETWEEN_TABLES = 0.5


class Display:
    """Shows how far a sweep is."""

    is_waiting = False  # for other workers
    finished = 0
    best = ""  # setting so far

    def __init__(self, quiet: bool, total: int) -> None:
        self.quiet = quiet
        self.total = total
        self._first: tuple[float, float] | None = None  # time, points done
        self._refreshed = -_SECONDS_BETWEEN_LINES
        use_table = not quiet and sys.stderr.isatty()
        self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True) if use_table else None

    def on_start(self, point: SweepPoint) -> None:
        self._print_line(f"starts: {point.label}, seed {point.seed}")

    def on_end(self, last_line: str, results: SweepResults) -> None:
        best = results.best
        self.best = f"best {best.describe(results.metric)}: {best.label}" if best else ""
        self._print_line(f"ends: {last_line}")

    def refresh(self, fractions: Callable[[], Sequence[tuple[SweepPoint, float]]]) -> None:
        """Show the progress if it is time. `fractions` returns how far each running point is."""
        pause = _SECONDS_BETWEEN_TABLES if self._live else _SECONDS_BETWEEN_LINES
        if self.quiet or time.monotonic() - self._refreshed < pause:
            return
        self._refreshed = time.monotonic()
        running = fractions()
        title, waiting = self.describe_progress(running), "waits for other workers" if self.is_waiting else ""
        if self._live is None:
            points = ", ".join(f"{point.label} {100 * fraction:.0f} %" for point, fraction in running)
            self._print_line("  ".join(filter(None, [title, points or waiting])))
            return
        table = Table("run", "seed", "", "", title=title, box=None, title_justify="left")
        for point, fraction in running:
            bar = ProgressBar(total=1.0, completed=fraction, width=30)
            table.add_row(point.label, str(point.seed), bar, f"{100 * fraction:.0f} %")
        if waiting:
            table.add_row(waiting, "", "", "")
        self._live.start()
        self._live.update(table, refresh=True)

    def describe_progress(self, running: Sequence[tuple[SweepPoint, float]]) -> str:
        """Return points done (running ones by their fraction), time left at the speed so far, and the best setting."""
        done = self.finished + sum(fraction for _, fraction in running)
        now = time.monotonic()
        start, done_before = self._first = self._first or (now, done)
        left = "time left unknown"
        if done - done_before >= 1e-3:
            left = f"{format_duration((self.total - done) * (now - start) / (done - done_before))} left"
        return "  ".join(filter(None, [f"{done:.1f} of {self.total} runs", left, self.best]))

    def close(self) -> None:
        if self._live:
            self._live.stop()

    def _print_line(self, text: str) -> None:
        if not self.quiet and not self._live:
            print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)
