"""A worker: takes points from a queue and runs several at once, each in its own process with a log file."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bigbatch.artifacts import atomic
from bigbatch.errors import DIVERGED, DONE, STOPPED, Problem, Stopped
from bigbatch.launch import forkserver
from bigbatch.launch.signals import StopRequest
from bigbatch.sweeps.analysis import SweepResults
from bigbatch.sweeps.config import SweepPoint
from bigbatch.sweeps.display import Display
from bigbatch.sweeps.queue import PointQueue
from bigbatch.sweeps.search import TrialQueue

_TAIL_BYTES = 1 << 14
_POLL_SECONDS = 0.1
_POLL_OTHERS_SECONDS = 2.0
_ATTEMPTS = 3  # per run, if something kills it
_LOCKED = "is being trained by process"  # the lock is also held while another worker looks at it


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
    """A run that is being trained by `bigbatch train`."""

    def __init__(self, point: SweepPoint, sweep_folder: Path, options: WorkerOptions, datasets: list[str]) -> None:
        self.point = point
        self.metrics = sweep_folder / "runs" / point.folder_name / "metrics.jsonl"
        # one log per worker: the last line of another's log would be taken for the reason of our failure
        self.log = sweep_folder / "work" / f"{point.hash}-{socket.gethostname()}-{os.getpid()}.log"
        description = sweep_folder / "work" / f"{point.hash}.json"
        atomic.write_text(description, point.run.to_json())
        arguments = [
            *("train", str(description), "--runs-dir", str(sweep_folder / "runs"), "--quiet"),
            *("--checkpoint-minutes", str(options.checkpoint_minutes)),
            *(("--data-dir", str(options.data_dir)) if options.data_dir else ()),
        ]
        threads = options.threads_per_run
        self.process = forkserver.start_command(arguments, self.log, threads=threads, datasets=datasets)

    @property
    def exit_code(self) -> int | None:
        """Return None while it runs, and minus the signal if one killed it."""
        return self.process.exitcode

    def stop(self) -> int | None:
        """Ask for a checkpoint and wait for the end."""
        self.process.terminate()
        self.process.join()
        return self.exit_code

    def last_line(self) -> str:
        """Return its last line of output: the sentence of a Problem, or the end of a traceback."""
        lines = [line for line in _read_tail(self.log).splitlines() if line.strip()]
        return lines[-1].removeprefix("bigbatch: ") if lines else f"no output; exit code {self.exit_code}"

    def fraction_done(self) -> float:
        run = self.point.run
        for line in reversed(_read_tail(self.metrics).splitlines()):
            try:
                row = json.loads(line)
            except ValueError:
                continue  # being written
            done = row.get("epoch", 0.0) / run.epochs if run.epochs else row.get("step", 0) / (run.steps or 1)
            return min(1.0, float(done))
        return 0.0


def _read_tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


class Worker:
    """Keeps `jobs` runs going until nothing is left, here or with other workers."""

    def __init__(
        self,
        queue: PointQueue | TrialQueue,
        folder: Path,
        options: WorkerOptions,
        write_results: Callable[[], SweepResults],
    ) -> None:
        self.queue = queue
        self.folder = folder
        self.options = options
        self.display = Display(options.quiet, queue.total)
        self.write_results = write_results
        self.processes: list[TrainingProcess] = []
        self._lost: list[TrainingProcess] = []  # referenced, or they would stop
        self._kills: Counter[str] = Counter()
        self._last_poll = 0.0

    def run_all(self) -> None:
        with StopRequest() as stop_request:
            try:
                while not stop_request.received and self._poll():
                    time.sleep(_POLL_SECONDS)
            finally:  # whatever ends this: a signal, a full disk, a preempted node
                self.display.close()
                interrupted = self._stop_all()
        if stop_request.received and (interrupted or self.queue.count_finished() < self.queue.total):
            raise Stopped(f"stopped; 'bigbatch sweep {self.folder}' resumes it")

    def _poll(self) -> bool:
        """Check on the processes and start new ones. Return whether anything is left to do."""
        lost = [point.hash for point in self.queue.send_heartbeat()]
        for process in list(self.processes):
            if process.point.hash in lost:  # another worker took this one for dead and runs the point now
                process.process.kill()
                process.process.join()
                self.processes.remove(process)
            elif process.exit_code is not None:
                self._handle_exit(process)
            elif self.queue.should_prune(process.point):
                process.stop()
                self._record_end(process, None)
        # while only other workers have points, there is no hurry
        patience = _POLL_OTHERS_SECONDS if self._last_poll else 0.0
        if len(self.processes) < self.options.jobs and time.monotonic() - self._last_poll > patience:
            self._last_poll = time.monotonic()
            while len(self.processes) < self.options.jobs and (point := self.queue.claim_next()):
                self.processes.append(TrainingProcess(point, self.folder, self.options, self.queue.datasets))
                self.display.on_start(point)
                self._last_poll = 0.0
            finished = self.queue.count_finished()
            if not self.processes and finished >= self.queue.total:
                return False
            self.display.is_waiting = not self.processes
            self.display.finished = finished
        self.display.refresh(lambda: [(process.point, process.fraction_done()) for process in self.processes])
        return True

    def _handle_exit(self, process: TrainingProcess) -> None:
        code, point = process.exit_code, process.point
        if code in (DONE, DIVERGED):
            self._record_end(process, None)
        elif code is None or code < 0 or code in (STOPPED, forkserver.LOST) or _LOCKED in process.last_line():
            self._kills[point.hash] += 1
            if self._kills[point.hash] < _ATTEMPTS:  # claimed again later, it resumes from its checkpoint
                self._remove(process)
                if code == forkserver.LOST:
                    self._lost.append(process)
                self.queue.release(point)
                return
            name = f"{signal.Signals(-code).name}: see {process.log}" if code and code < 0 else process.last_line()
            self._record_end(process, f"was ended {_ATTEMPTS} times, the last time by {name}")
        else:
            self._record_end(process, process.last_line())

    def _record_end(self, process: TrainingProcess, problem: str | None) -> None:
        self._remove(process)
        self.queue.finish(process.point, problem)
        self.display.on_end(process.last_line(), self.write_results())

    def _remove(self, process: TrainingProcess) -> None:
        self.processes.remove(process)
        self._last_poll = 0.0

    def _stop_all(self) -> bool:
        """Let all runs write a checkpoint and end. Return whether any of them was unfinished."""
        for process in self.processes:
            process.process.terminate()  # all of them, before any is waited for
        unfinished = False
        for process in self.processes:
            if process.stop() in (DONE, DIVERGED):
                self.queue.finish(process.point, None)
            else:
                self.queue.release(process.point)
                unfinished = True
        if self.processes:
            self.processes = []
            self.write_results()
        return unfinished
