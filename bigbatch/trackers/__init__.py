"""Trackers copy the metrics of a run to other tools. metrics.jsonl stays the source.

A part names the module it `NEEDS` and offers `start(config, place) -> Mirror`. A mirror runs in a process of its own
that reads metrics.jsonl (`mirroring/process.py`): the training does not wait for the tool and does not fail with it,
and finished runs are mirrored in the same way.
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
from bigbatch.trust import trust_typed

_SECONDS_TO_FINISH = 60.0
_MAX_REASON_CHARACTERS = 200  # of a tool's error; the rest is in its log


@dataclass
class TrackedRun:
    """The run that is mirrored, and what identifies it in the tool after an interruption."""

    name: str  # of the run's folder
    files: Path  # the mirror's own folder inside the run's
    run: dict[str, Any]  # as run.json describes it
    kept: dict[str, Any] = field(default_factory=dict)  # what a mirror stores here is restored at its next start


class Mirror(Protocol):
    """The connection to a tool."""

    def add(self, step: int, values: dict[str, float]) -> None: ...
    def flush(self) -> None: ...
    def close(self, status: str) -> None: ...


def check_installed(names: Sequence[str]) -> None:
    """Refuse trackers whose tool is not installed, before the training starts. The user typed their names."""
    trust_typed(names)
    for name in names:
        needed = parts.find("trackers", parts.configure("trackers", name).name).NEEDS
        if importlib.util.find_spec(needed) is None:
            extra = f"'bigbatch[{name}]'" if name in parts.names("trackers") else needed
            raise Problem(f"tracker '{name}' needs {needed}, which is not installed: pip install {extra}")


@contextmanager
def mirror_metrics(folder: Path, names: Sequence[str]) -> Iterator[None]:
    """Mirror the metrics of the run in the folder with each of the named trackers while the block runs."""
    with ExitStack() as mirrors:
        for name in dict.fromkeys(names):
            mirrors.enter_context(_run_mirror_process(folder, name))
        yield


@contextmanager
def _run_mirror_process(folder: Path, name: str) -> Iterator[None]:
    log = folder / "trackers" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "bigbatch.trackers.mirroring.process", str(folder), name]
    with log.open("wb") as output:
        # the end of its stdin tells it that this process ended, even by kill -9; Ctrl-C does not reach it
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, close_fds=True, start_new_session=True
        )
    watch = threading.Thread(target=_warn_on_failure, args=(process, folder, name, log), daemon=True)
    watch.start()
    try:
        yield
    finally:
        assert process.stdin
        process.stdin.close()
        watch.join(_SECONDS_TO_FINISH)
        if watch.is_alive():  # it hangs; the Notice says how to mirror the rest
            process.kill()
            watch.join()


def _warn_on_failure(process: subprocess.Popen[bytes], folder: Path, name: str, log: Path) -> None:
    if process.wait() == 0:
        return
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    hung = f"no answer within {_SECONDS_TO_FINISH:g} s after the training"
    reason = hung if process.returncode == -signal.SIGKILL else (lines or ["no output"])[-1][:_MAX_REASON_CHARACTERS]
    warnings.warn(
        Notice(
            f"{name} stopped mirroring ({reason}); the training and its metrics are not affected, and "
            f"'bigbatch report {folder} --track {name}' fills in what is missing"
        ),
        stacklevel=2,
    )
