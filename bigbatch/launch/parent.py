"""Processes that end with the one that started them, however that one ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

PARENT = "BIGBATCH_PARENT"  # the id of the process that a launcher or a rank ends with
MESSAGES = "BIGBATCH_RANK_MESSAGES"  # a folder where ranks leave their ids and error messages for the launcher
_PR_SET_PDEATHSIG = 1
_SECONDS_BETWEEN_LOOKS = 1.0


def end_with_parent(*, as_launcher: bool = False) -> None:
    """Receive SIGTERM when the parent ends, or now if it has ended before; for processes that our launcher started.

    `as_launcher`: what this process starts ends with it in the same way.
    """
    if PARENT not in os.environ:
        return
    parent = int(os.environ.pop(PARENT))
    if as_launcher:
        os.environ[PARENT] = str(os.getpid())
    if folder := os.environ.get(MESSAGES):
        with suppress(OSError):
            (Path(folder) / f"pid-{os.getpid()}").touch()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
    elif sys.platform != "linux":
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    os.kill(os.getpid(), signal.SIGTERM)


def wait_for_orphans(folder: Path, seconds: float) -> None:
    """Let the ranks that left their ids in a folder write their checkpoint and end; kill those that do not."""
    deadline = time.monotonic() + seconds
    for path in folder.glob("pid-*"):
        pid = int(path.name.removeprefix("pid-"))
        with suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.kill(pid, 0)
                time.sleep(0.05)
            os.kill(pid, signal.SIGKILL)
