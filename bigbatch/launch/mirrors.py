"""The processes that mirror a run's metrics in experiment trackers while it trains."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bigbatch.errors import Notice

_SECONDS_TO_FINISH = 60.0
_MAX_REASON_CHARACTERS = 200  # of a tool's error; the rest is in its log


@contextmanager
def mirror_metrics(folder: Path, names: Sequence[str]) -> Iterator[None]:
    """Mirror the metrics of the run in the folder with each of the named trackers while the block runs."""
    with ExitStack() as mirrors:
        for name in dict.fromkeys(names):
            mirrors.enter_context(_run_mirror(folder, name))
        yield


@contextmanager
def _run_mirror(folder: Path, name: str) -> Iterator[None]:
    log = folder / "trackers" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "bigbatch.trackers.mirroring.process", str(folder), name]
    with log.open("wb") as output:
        # the end of its stdin tells it that this process ended, even by kill -9; Ctrl-C does not reach it
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True)

    def warn_on_failure() -> None:
        if process.wait() == 0:
            return
        last_line = (log.read_text(encoding="utf-8", errors="replace").strip() or "no output").splitlines()[-1]
        hung = f"no answer within {_SECONDS_TO_FINISH:g} s after the training"
        reason = hung if process.returncode == -signal.SIGKILL else last_line[:_MAX_REASON_CHARACTERS]
        sentence = (
            f"{name} stopped mirroring ({reason}); the training and its metrics are not affected, and "
            f"'bigbatch report {folder} --track {name}' fills in what is missing"
        )
        warnings.warn(Notice(sentence), stacklevel=2)

    watch = threading.Thread(target=warn_on_failure, daemon=True)
    watch.start()
    try:
        yield
    finally:
        assert process.stdin
        process.stdin.close()
        watch.join(_SECONDS_TO_FINISH)
        if watch.is_alive():
            process.kill()
            watch.join()
