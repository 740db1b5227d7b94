"""Trackers: mirrors of a run's metrics in other people's tools. metrics.jsonl stays the truth.

A part names the module it `NEEDS` and offers `start(config, place) -> Mirror`. A mirror lives in a process of its own
that reads metrics.jsonl behind the training (`_follow.py`): whatever a tool does, the training neither waits for it
nor breaks with it, and a run that was finished long ago is mirrored in the same way.
"""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bigbatch import parts
from bigbatch.errors import Notice, Problem

_SECONDS_TO_FINISH = 60.0
_LONGEST_REASON = 200  # characters of what a tool complains of; the rest is in its log


@dataclass
class Place:
    """Which run is mirrored, and what finds its place in the tool again after a break."""

    name: str  # of the run's folder
    files: Path  # the mirror's own folder inside of the run's
    run: dict[str, Any]  # as run.json describes it
    kept: dict[str, Any] = field(default_factory=dict)  # what a mirror puts here is there again next time


class Mirror(Protocol):
    def add(self, step: int, values: dict[str, float]) -> None: ...
    def flush(self) -> None: ...
    def close(self, status: str) -> None: ...


def check(names: Sequence[str]) -> None:
    """A Problem now rather than a mirror that is missing afterwards."""
    for name in names:
        needed = parts.find("trackers", parts.configure("trackers", name).name).NEEDS
        if importlib.util.find_spec(needed) is None:
            extra = f"'bigbatch[{name}]'" if name in parts.names("trackers") else needed
            raise Problem(f"tracker '{name}' needs {needed}, which is not installed: pip install {extra}")


@contextmanager
def mirrored(folder: Path, names: Sequence[str]) -> Iterator[None]:
    """Within it, what the run in the folder writes into its metrics is mirrored by each of the named trackers."""
    with ExitStack() as mirrors:
        for name in dict.fromkeys(names):
            mirrors.enter_context(_following(folder, name))
        yield


@contextmanager
def _following(folder: Path, name: str) -> Iterator[None]:
    log = folder / "trackers" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "bigbatch.trackers._follow", str(folder), name]
    with log.open("wb") as said:
        # the end of its stdin tells it that we are gone, even by kill -9; Ctrl-C is for us alone
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=said, stderr=said, close_fds=True, start_new_session=True
        )
    watch = threading.Thread(target=_tell_of_failure, args=(process, folder, name, log), daemon=True)
    watch.start()
    try:
        yield
    finally:
        assert process.stdin
        process.stdin.close()
        watch.join(_SECONDS_TO_FINISH)
        if watch.is_alive():  # it hangs: the Notice that follows says how to fill in what is missing
            process.kill()
            watch.join()


def _tell_of_failure(process: subprocess.Popen[bytes], folder: Path, name: str, log: Path) -> None:
    if process.wait() == 0:
        return
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    hung = f"no answer within {_SECONDS_TO_FINISH:g} s of the training's end"
    reason = hung if process.returncode == -signal.SIGKILL else (lines or ["no word"])[-1][:_LONGEST_REASON]
    warnings.warn(
        Notice(
            f"{name} mirrors no more ({reason}); the training and its metrics are not touched by it, and "
            f"'bigbatch report {folder} --track {name}' fills in what is missing"
        ),
        stacklevel=2,
    )
