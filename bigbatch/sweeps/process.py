"""One run of a sweep in its own process: `bigbatch train` with a log file."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bigbatch.artifacts import atomic
from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem
from bigbatch.launch import forkserver
from bigbatch.sweeps.config import SweepPoint

_TAIL_BYTES = 1 << 14


@dataclass(frozen=True)
class WorkerOptions:
    """How a worker runs the points of a sweep."""

    jobs: int = 1  # runs at once
    data_dir: Path | None = None
    checkpoint_minutes: float = 10.0
    storage: str | None = None  # of a search, with its password
    quiet: bool = True

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise Problem(f"--jobs must be at least 1, got {self.jobs}: use 1 or more")

    @property
    def threads_per_run(self) -> int:
        """Return the cores divided by the jobs; OMP_NUM_THREADS, if set, is the number per run."""
        fixed = os.environ.get("OMP_NUM_THREADS", "")
        if fixed.isdigit() and int(fixed) > 0:
            return int(fixed)
        return max(1, len(os.sched_getaffinity(0)) // self.jobs)


class TrainingProcess:
    """A run that is being trained."""

    def __init__(self, point: SweepPoint, sweep_folder: Path, options: WorkerOptions, datasets: list[str]) -> None:
        self.point = point
        self.folder = Folder(sweep_folder / "runs" / point.folder_name)
        # one log per worker: the last line of another's log would be taken for the reason of our failure
        self.log = sweep_folder / "work" / f"{point.hash}-{socket.gethostname()}-{os.getpid()}.log"
        description = sweep_folder / "work" / f"{point.hash}.json"
        atomic.write_text(description, point.run.to_json())
        arguments = [
            *("train", str(description), "--runs-dir", str(sweep_folder / "runs"), "--quiet"),
            *("--checkpoint-minutes", str(options.checkpoint_minutes)),
            *(("--data-dir", str(options.data_dir)) if options.data_dir else ()),
        ]
        self._process = forkserver.start_command(
            arguments, self.log, threads=options.threads_per_run, datasets=datasets
        )

    @property
    def exit_code(self) -> int | None:
        """Return None while it runs, and minus the signal if one killed it."""
        return self._process.exitcode

    def request_stop(self) -> None:
        """Ask for a checkpoint and an end."""
        self._process.terminate()

    def stop(self) -> int | None:
        self.request_stop()
        return self._wait()

    def kill(self) -> int | None:
        self._process.kill()
        return self._wait()

    def _wait(self) -> int | None:
        self._process.join()
        return self.exit_code

    def last_line(self) -> str:
        """Return its last line of output: the sentence of a Problem, or the end of a traceback."""
        lines = [line for line in _read_tail(self.log).splitlines() if line.strip()]
        return lines[-1].removeprefix("bigbatch: ") if lines else f"no output; exit code {self.exit_code}"

    def fraction_done(self) -> float:
        row, run = self._last_metrics(), self.point.run
        done = row.get("epoch", 0.0) / run.epochs if run.epochs else row.get("step", 0) / (run.steps or 1)
        return min(1.0, float(done))

    def _last_metrics(self) -> dict[str, Any]:
        for line in reversed(_read_tail(self.folder.path / "metrics.jsonl").splitlines()):
            try:
                return dict(json.loads(line))
            except ValueError:
                continue  # being written
        return {}


def _read_tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
