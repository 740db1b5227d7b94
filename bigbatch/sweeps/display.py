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
from bigbatch.sweeps.config import SweepPoint
from bigbatch.sweeps.process import TrainingProcess

_SECONDS_BETWEEN_LINES = 60.0
_SECONDS_BETWEEN_TABLES = 0.5


class Display:
    """Shows nothing, but knows how far a sweep is. `describe_best` says which setting is the best so far."""

    def __init__(self, total: int, describe_best: Callable[[], str]) -> None:
        self.total = total
        self.is_waiting = False  # for other workers
        self.finished = 0
        self.best = ""
        self._describe_best = describe_best
        self._first: tuple[float, float] | None = None  # time, points done

    def on_start(self, point: SweepPoint) -> None:
        pass

    def on_end(self, process: TrainingProcess) -> None:
        self.best = self._describe_best()

    def refresh(self, processes: Sequence[TrainingProcess]) -> None:
        pass

    def close(self) -> None:
        pass

    def describe_progress(self, processes: Sequence[TrainingProcess]) -> str:
        """Return points done (running ones by their fraction), time left at the speed so far, and the best setting."""
        done = self.finished + sum(process.fraction_done() for process in processes)
        now = time.monotonic()
        start, done_before = self._first = self._first or (now, done)
        left = "time left unknown"
        if done - done_before >= 1e-3:
            left = f"{format_duration((self.total - done) * (now - start) / (done - done_before))} left"
        return "  ".join(filter(None, [f"{done:.1f} of {self.total} runs", left, self.best]))


class LineDisplay(Display):
    """For logs: a line when a run starts or ends, and one per minute."""

    _last_line = 0.0

    def on_start(self, point: SweepPoint) -> None:
        self._print(f"starts: {point.label}, seed {point.seed}")

    def on_end(self, process: TrainingProcess) -> None:
        super().on_end(process)
        self._print(f"ends: {process.last_line()}")

    def refresh(self, processes: Sequence[TrainingProcess]) -> None:
        if time.monotonic() - self._last_line < _SECONDS_BETWEEN_LINES and self._last_line:
            return
        self._last_line = time.monotonic()
        running = ", ".join(f"{process.point.label} {100 * process.fraction_done():.0f} %" for process in processes)
        running = running or ("waits for other workers" if self.is_waiting else "")
        self._print("  ".join(filter(None, [self.describe_progress(processes), running])))

    def _print(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


class TableDisplay(Display):
    """For terminals: what runs and how far it is."""

    _live: Live | None = None
    _last_table = 0.0

    def refresh(self, processes: Sequence[TrainingProcess]) -> None:
        if time.monotonic() - self._last_table < _SECONDS_BETWEEN_TABLES:
            return
        self._last_table = time.monotonic()
        if self._live is None:
            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
        title = self.describe_progress(processes)
        table = Table("run", "seed", "", "", title=title, box=None, title_justify="left")
        for process in processes:
            fraction = process.fraction_done()
            bar = ProgressBar(total=1.0, completed=fraction, width=30)
            table.add_row(process.point.label, str(process.point.seed), bar, f"{100 * fraction:.0f} %")
        if self.is_waiting:
            table.add_row("waits for other workers", "", "", "")
        self._live.update(table, refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def choose_display(quiet: bool, total: int, describe_best: Callable[[], str]) -> Display:
    kind = Display if quiet else TableDisplay if sys.stderr.isatty() else LineDisplay
    return kind(total, describe_best)
