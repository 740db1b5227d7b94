"""A worker: takes points from a queue and runs them, some at once, each in a process of its own."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bigbatch.errors import DIVERGED, DONE, STOPPED, Stopped
from bigbatch.launch.signals import StopRequest
from bigbatch.sweeps.child import Child, threads_each
from bigbatch.sweeps.display import Display
from bigbatch.sweeps.forks import Forks
from bigbatch.sweeps.queue import Queue

_LOOK_SECONDS = 0.1
_LOOK_AT_OTHERS_SECONDS = 2.0
_TRIES = 3  # of a run that something kills
_LOCKED = "is being trained by process"  # by somebody, or so it looked for the moment in which another worker looked


class Worker:
    """`--jobs` runs at once until nothing is left, here or with other workers."""

    def __init__(
        self, queue: Queue, folder: Path, jobs: int, options: list[str], display: Display, ended: Callable[[], object]
    ) -> None:
        self.queue = queue
        self.folder = folder
        self.jobs = jobs
        self.options = options
        self.display = display
        self.ended = ended  # called after each run: the table is written anew
        self.children: list[Child] = []
        self.forks = Forks(threads_each(jobs), queue.datasets())
        self._kills: Counter[str] = Counter()
        self._looked = 0.0

    def to_the_end(self) -> None:
        with StopRequest() as stop_request:
            try:
                while not stop_request.received and self._go_on():
                    time.sleep(_LOOK_SECONDS)
            finally:  # whatever ends this: a signal, a full disk, a cluster that wants its node back
                self.display.close()
                stopped = self._stop_all()
                self.forks.close()
        if stop_request.received and (stopped or self.queue.finished() < self.queue.total):
            raise Stopped(f"stopped; 'bigbatch sweep {self.folder}' goes on")

    def _go_on(self) -> bool:
        """Look after what runs, start what can be started; whether anything is left."""
        for lost in self.queue.beat():
            self._drop(lost.hash)
        for child in list(self.children):
            if child.code is not None:
                self._reap(child)
            elif self.queue.unpromising(child):
                self._prune(child)
        if len(self.children) < self.jobs and time.monotonic() - self._looked > self._patience():
            self._looked = time.monotonic()
            while len(self.children) < self.jobs and (point := self.queue.next()):
                self.children.append(Child(point, self.folder, self.forks, self.options))
                self.display.started(point)
                self._looked = 0.0
            finished = self.queue.finished()
            if not self.children and finished >= self.queue.total:
                return False
            self.display.waits = not self.children
            self.display.finished_points = finished
        self.display.tick(self.children)
        return True

    def _patience(self) -> float:
        """While only others have work, there is no hurry to look."""
        return _LOOK_AT_OTHERS_SECONDS if self._looked else 0.0

    def _reap(self, child: Child) -> None:
        self.children.remove(child)
        self._looked = 0.0
        code, point = child.code, child.point
        if code in (DONE, DIVERGED):
            self.queue.ended(point, None)
        elif code is None or code < 0 or code == STOPPED or _LOCKED in child.last_line():
            self._kills[point.hash] += 1
            if self._kills[point.hash] < _TRIES:
                self.queue.give_back(point)  # and taken again: it goes on from its checkpoint
                return
            name = f"{signal.Signals(-code).name}: see {child.log}" if code and code < 0 else child.last_line()
            self.queue.ended(point, f"was ended {_TRIES} times, the last time by {name}")
        else:
            self.queue.ended(point, child.last_line())
        self.display.finished(child)
        self.ended()

    def _prune(self, child: Child) -> None:
        child.stop()
        self.children.remove(child)
        self._looked = 0.0
        self.queue.ended(child.point, None)
        self.display.finished(child)
        self.ended()

    def _drop(self, name: str) -> None:
        """Another worker took this for dead and runs the point now."""
        for child in [child for child in self.children if child.point.hash == name]:
            child.kill()
            self.children.remove(child)

    def _stop_all(self) -> bool:
        """Let what runs write a checkpoint and end; whether anything was cut short by that."""
        for child in self.children:
            child.ask_to_stop()  # all of them, before any is waited for
        cut_short = False
        for child in self.children:
            if child.stop() in (DONE, DIVERGED):
                self.queue.ended(child.point, None)
            else:
                self.queue.give_back(child.point)
                cut_short = True
        if self.children:
            self.children = []
            self.ended()
        return cut_short
