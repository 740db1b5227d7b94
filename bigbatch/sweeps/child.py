"""One run in a process of its own: `bigbatch train`, as a person would start it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bigbatch.errors import Problem
from bigbatch.results import Folder
from bigbatch.sweeps.asked import Point

_PR_SET_PDEATHSIG = 1
_TAIL_BYTES = 1 << 14


def threads_each(jobs: int) -> int:
    """Cores divided over the jobs; OMP_NUM_THREADS is taken as the number for each."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) > 0 else max(1, len(os.sched_getaffinity(0)) // jobs)


class Child:
    """A training under way."""

    def __init__(self, point: Point, sweep_folder: Path, threads: int, options: list[str]) -> None:
        self.point = point
        self.folder = Folder(sweep_folder / "runs" / point.folder_name)
        self.log = sweep_folder / "work" / f"{point.hash}.log"
        self.tests_read = 0
        description = sweep_folder / "work" / f"{point.hash}.json"
        try:
            description.write_text(point.run.to_json(), encoding="utf-8")
            log = self.log.open("ab")
        except OSError as error:
            raise Problem(f"{description.parent} cannot be written to ({error.strerror}): free space there") from error
        command = [
            *(sys.executable, "-m", "bigbatch", "train", str(description)),
            *("--runs-dir", str(sweep_folder / "runs"), "--quiet", *options),
        ]
        with log:
            # in a session of its own, so that Ctrl-C reaches it through us alone
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | {"OMP_NUM_THREADS": str(threads)},
                preexec_fn=_stop_with(os.getpid()),
            )

    def stop(self) -> None:
        """Ask for a checkpoint and an end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def last_line(self) -> str:
        """What it said last: the sentence of a Problem, or the end of a traceback."""
        lines = [line for line in _tail(self.log).splitlines() if line.strip()]
        return lines[-1].removeprefix("bigbatch: ") if lines else f"it said nothing; exit {self.process.returncode}"

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


def _stop_with(parent: int) -> Callable[[], None] | None:
    """A kill -9 of the sweep asks its trainings to stop too: nobody else would, and nobody would know of them."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(75)

    return before_exec


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
