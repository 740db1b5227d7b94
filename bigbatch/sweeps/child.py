"""One run in a process of its own: `bigbatch train`, as a person would start it."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

from bigbatch.artifacts import atomic
from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem
from bigbatch.sweeps.asked import Point
from bigbatch.sweeps.forks import Forks

_TAIL_BYTES = 1 << 14


def threads_each(jobs: int) -> int:
    """Cores divided over the jobs; OMP_NUM_THREADS is taken as the number for each."""
    if jobs < 1:
        raise Problem(f"--jobs {jobs} makes no sense: use 1 or more")
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) > 0 else max(1, len(os.sched_getaffinity(0)) // jobs)


class Child:
    """A training under way."""

    def __init__(self, point: Point, sweep_folder: Path, forks: Forks, options: list[str]) -> None:
        self.point = point
        self.folder = Folder(sweep_folder / "runs" / point.folder_name)
        # of this worker alone: another's last line would be taken for the reason of our failure
        self.log = sweep_folder / "work" / f"{point.hash}-{socket.gethostname()}-{os.getpid()}.log"
        self.tests_read = 0
        description = sweep_folder / "work" / f"{point.hash}.json"
        atomic.write_text(description, point.run.to_json())
        self.forks = forks
        self.number = forks.start(
            ["train", str(description), "--runs-dir", str(sweep_folder / "runs"), "--quiet", *options], self.log
        )

    @property
    def code(self) -> int | None:
        """Its exit code, or None while it runs."""
        return self.forks.code(self.number)

    def stop(self) -> int:
        """Ask for a checkpoint and an end, and wait."""
        self.ask_to_stop()
        return self.forks.wait(self.number)

    def ask_to_stop(self) -> None:
        self.forks.signal(self.number, signal.SIGTERM)

    def kill(self) -> int:
        self.forks.signal(self.number, signal.SIGKILL)
        return self.forks.wait(self.number)

    def last_line(self) -> str:
        """What it said last: the sentence of a Problem, or the end of a traceback."""
        lines = [line for line in _tail(self.log).splitlines() if line.strip()]
        return lines[-1].removeprefix("bigbatch: ") if lines else f"it said nothing; exit {self.code}"

    def share_done(self) -> float:
        """From 0 to 1."""
        row = self._last_row()
        if self.point.run.epochs is not None:
            return min(1.0, row.get("epoch", 0.0) / self.point.run.epochs)
        return min(1.0, row.get("step", 0) / (self.point.run.steps or 1))

    def _last_row(self) -> dict[str, Any]:
        for line in reversed(_tail(self.folder.path / "metrics.jsonl").splitlines()):
            try:
                return json.loads(line)
            except ValueError:
                continue  # being written
        return {}


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
