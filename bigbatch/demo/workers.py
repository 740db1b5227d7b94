"""Trainings on all cores at once: a process a core and one thread each, as small models want it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from bigbatch.run import Run


class Workers:
    """`do` starts a function of this package in a free process and gives a Future."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def do(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        return self._pool.submit(function, *arguments)

    def train(self, runs: Sequence[Run], runs_dir: Path) -> list[Future[Any]]:
        return [self.do(trained, run, runs_dir) for run in runs]


@contextmanager
def workers(jobs: int) -> Iterator[Workers]:
    """Fresh processes: torch does not bear to be forked. An error in one ends what has not begun yet."""
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_start)
    try:
        yield Workers(pool)
    finally:
        pool.shutdown(cancel_futures=True)


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def trained(run: Run, runs_dir: Path) -> dict[str, Any]:
    """In a worker: the run's summary. What is finished is not trained again, what was stopped goes on."""
    from bigbatch.training import train

    return train(run, runs_dir=runs_dir)


def _start() -> None:
    import torch

    torch.set_num_threads(1)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """A pool whose owner was killed would wait for work for ever."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
