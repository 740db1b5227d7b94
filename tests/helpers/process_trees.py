"""Processes with their descendants: commands that end as a whole, and waiting for processes that are not ours."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bigbatch.launch.parent import PARENT


@contextmanager
def start(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a command; whatever ends the block, nothing of it is left running: its ranks end with their launcher.

    It ends with this process too, where it is one of bigbatch's.
    """
    environment = options.pop("env", os.environ) | {PARENT: str(os.getpid())}
    process = subprocess.Popen(command, text=True, start_new_session=True, env=environment, **options)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


def run(command: Sequence[str], timeout: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """As subprocess.run with captured output, but a timeout ends the whole tree of processes."""
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        stdout, stderr = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def descendants(pid: int) -> list[int]:
    """Return the ids of the processes that a process has started, and those that they have."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *descendants(child)]
    return found


def wait_for_ends(pids: Iterable[int], timeout: float = 60.0) -> None:
    """Wait until processes have ended that need not be our children."""
    deadline = time.monotonic() + timeout
    for pid in pids:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
                assert ready, f"process {pid} still runs: {Path(f'/proc/{pid}/cmdline').read_bytes()!r}"
            finally:
                os.close(descriptor)
