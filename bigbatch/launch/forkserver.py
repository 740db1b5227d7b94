"""`bigbatch` commands in processes that start fast: forked from a server that has imported torch once.

The server is multiprocessing's own. It computes nothing, so that no thread pool exists that a fork would break.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, get_context, parent_process
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import ModuleType

LOST = 255  # exit code of a process whose fork server was killed; the process itself may still run
_PRELOAD = ("bigbatch.cli", "bigbatch.launch.processes", "bigbatch.recipes", "bigbatch.training.loop", "torch._dynamo")
_DATASET_IMPORTS = {"digits": "sklearn.datasets"}  # slow, and imported only when the dataset is loaded


def preload_modules(datasets: Sequence[str]) -> list[str]:
    """Return the modules that the server imports for trainings on these datasets."""
    return [*_PRELOAD, *sorted({_DATASET_IMPORTS[name] for name in datasets if name in _DATASET_IMPORTS})]


def start_command(
    arguments: Sequence[str], log: Path, *, threads: int, datasets: Sequence[str] = ()
) -> ForkServerProcess:
    """Start `bigbatch ARGUMENTS` with its output appended to a log file. SIGTERM asks it to stop.

    It ignores Ctrl-C and SIGHUP, which a terminal sends to every process, and receives SIGTERM when this process is
    killed. Keep a reference to the returned process: it ends with the last one.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(preload_modules(datasets))
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    process = context.Process(target=_run_command, args=(list(arguments), log, environment, threads))
    with _without_main_module():
        previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        try:
            forkserver.ensure_running()  # the server and its children inherit the blocked signals
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        process.start()
    return process


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Hide the caller's script, which multiprocessing would run again in every child."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _run_command(arguments: list[str], log: Path, environment: dict[str, str], threads: int) -> None:
    """Run the command in the child. A SIGTERM that arrived before this line is delivered now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(environment)
    import torch

    torch.set_num_threads(threads)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    sys.argv = ["bigbatch", *arguments]
    runpy.run_module("bigbatch", run_name="__main__")


def _stop_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
