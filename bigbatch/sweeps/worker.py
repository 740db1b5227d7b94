"""A worker: takes points from a queue and runs several at once, each in its own process."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bigbatch.errors import DIVERGED, DONE, STOPPED, Stopped
from bigbatch.launch.forkserver import LOST
from bigbatch.launch.signals import StopRequest
from bigbatch.sweeps.config import SweepPoint
from bigbatch.sweeps.display import Display
from bigbatch.sweeps.process import TrainingProcess, WorkerOptions
from bigbatch.sweeps.queue import RunQueue

_POLL_SECONDS = 0.1
_POLL_OTHERS_SECONDS = 2.0
_ATTEMPTS = 3  # per run, if something kills it
_LOCKED = "is being trained by process"  # the lock is also held while another worker looks at it


class Worker:
    """Keeps `jobs` runs going until nothing is left, here or with other workers."""

    def __init__(
        self,
        queue: RunQueue,
        folder: Path,
        options: WorkerOptions,
        display: Display,
        on_run_end: Callable[[], object],
    ) -> None:
        self.queue = queue
        self.folder = folder
        self.options = options
        self.display = display
        self.on_run_end = on_run_end
        self.processes: list[TrainingProcess] = []
        self._lost: list[TrainingProcess] = []  # referenced, or they would stop
        self._datasets = queue.dataset_names()
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
        for lost in self.queue.send_heartbeat():
            self._kill_lost_claim(lost)
        for process in list(self.processes):
            if process.exit_code is not None:
                self._handle_exit(process)
            elif self.queue.should_prune(process.point):
                process.stop()
                self._record_end(process, None)
        # while only other workers have points, there is no hurry
        patience = _POLL_OTHERS_SECONDS if self._last_poll else 0.0
        if len(self.processes) < self.options.jobs and time.monotonic() - self._last_poll > patience:
            self._last_poll = time.monotonic()
            while len(self.processes) < self.options.jobs and (point := self.queue.claim_next()):
                self.processes.append(TrainingProcess(point, self.folder, self.options, self._datasets))
                self.display.on_start(point)
                self._last_poll = 0.0
            finished = self.queue.count_finished()
            if not self.processes and finished >= self.queue.total:
                return False
            self.display.is_waiting = not self.processes
            self.display.finished = finished
        self.display.refresh(self.processes)
        return True

    def _handle_exit(self, process: TrainingProcess) -> None:
        code, point = process.exit_code, process.point
        if code in (DONE, DIVERGED):
            self._record_end(process, None)
        elif code is None or code < 0 or code in (STOPPED, LOST) or _LOCKED in process.last_line():
            self._kills[point.hash] += 1
            if self._kills[point.hash] < _ATTEMPTS:  # claimed again later, it resumes from its checkpoint
                self._remove(process)
                if code == LOST:
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
        self.display.on_end(process)
        self.on_run_end()

    def _remove(self, process: TrainingProcess) -> None:
        self.processes.remove(process)
        self._last_poll = 0.0

    def _kill_lost_claim(self, point: SweepPoint) -> None:
        """Another worker took this one for dead and runs the point now."""
        for process in [process for process in self.processes if process.point.hash == point.hash]:
            process.kill()
            self.processes.remove(process)

    def _stop_all(self) -> bool:
        """Let all runs write a checkpoint and end. Return whether any of them was unfinished."""
        for process in self.processes:
            process.request_stop()  # all of them, before any is waited for
        unfinished = False
        for process in self.processes:
            if process.stop() in (DONE, DIVERGED):
                self.queue.finish(process.point, None)
            else:
                self.queue.release(process.point)
                unfinished = True
        if self.processes:
            self.processes = []
            self.on_run_end()
        return unfinished
