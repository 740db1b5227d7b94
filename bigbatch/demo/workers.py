"""Trainings on all cores at once: a process a core and one thread each, as small models want it."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from bigbatch.launch.forkserver import preload_modules
from bigbatch.run import Run


class Workers:
    """`do` starts a function of this package in a free process and gives a Future."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def do(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        with _without_ctrl_c():  # a new process inherits this, and has no traceback to show before it can listen
            return self._pool.submit(_done, function, *arguments)

    def train(self, runs: Sequence[Run], runs_dir: Path) -> list[Future[Any]]:
        return [self.do(trained, run, runs_dir) for run in runs]


@contextmanager
def workers(jobs: int) -> Iterator[Workers]:
    """Fresh processes: torch does not bear to be forked.

    Whatever ends this early, an error, Ctrl-C or SIGTERM, ends them too: trainings write a checkpoint after the step
    at hand, all else is dropped. The end of `held`, which only this process has, is how they learn of it.
    """
    context = get_context("spawn")
    others = active_children()
    ends, held = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start, initargs=(ends,))
    with _sigterm_unwinds():
        try:
            yield Workers(pool)
            pool.shutdown()
        except (KeyboardInterrupt, SystemExit):
            print("bigbatch: what is trained so far is kept; the same command goes on with it", file=sys.stderr)
            raise
        finally:
            held.close()
            for process in active_children():
                if process not in others:
                    process.terminate()  # what still imports cannot hear of that end yet
            pool.shutdown(cancel_futures=True)
            ends.close()


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def trained(run: Run, runs_dir: Path) -> Mapping[str, Any]:
    """In a worker: the run's summary. What is finished is not trained again, what was stopped goes on."""
    from bigbatch.training.loop import train

    return train(run, runs_dir=runs_dir)


# -- signals of the owner


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """It is delivered afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """SIGTERM unwinds as Ctrl-C does, so that no process is left behind."""
    if threading.current_thread() is not threading.main_thread():  # Python delivers signals nowhere else
        yield
        return
    before = signal.signal(signal.SIGTERM, _unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _unwind(number: int, _: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once is enough, and twice would cut the unwinding short
    raise SystemExit(128 + number)


# -- in a worker

_ending = threading.Event()


def _start(ends: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal: the owner decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_owner, args=(ends,), daemon=True).start()
    import torch

    torch.set_num_threads(1)
    for name in preload_modules(["digits"]):  # within a training they would delay its stop
        importlib.import_module(name)


def _end_with_owner(ends: Connection) -> None:
    """A training that hears SIGTERM stops with a checkpoint; anything else is ended by it at once."""
    ends.poll(None)  # it has an end, and nothing else to read: the owner is ending, or was killed
    _ending.set()
    os.kill(os.getpid(), signal.SIGTERM)


def _done(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    finally:
        if _ending.is_set():  # nobody waits for the result, and the next function should not begin
            os._exit(1)
