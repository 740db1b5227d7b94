"""Starting the ranks of a case and waiting for their records. Whatever ends the wait ends the ranks too."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from bigbatch.errors import Problem
from bigbatch.launch import processes
from bigbatch.scaling.measured import hosts as machines
from bigbatch.scaling.measured.cases import Case
from bigbatch.scaling.measured.rank_program import MARK, MODULE, Record, Task

_PATIENCE_SECONDS = 900
_TRIES = 3  # with another port each


def records(case: Case, task: Task, folder: Path, hosts: Sequence[str] = ()) -> list[Record]:
    """What each rank measured, by rank. `folder` takes their output, and their records where `hosts` is empty."""
    arguments = [task.model_dump_json()]
    for attempt in range(_TRIES):
        if hosts:
            lines = machines.lines(hosts, case.ranks, MODULE, arguments)
        else:
            lines = [processes.rank_command(case.engine, case.ranks, MODULE, arguments)]
        outputs = run_all(lines, case.ranks, folder)
        texts = (
            [line.partition(MARK)[2] for text in outputs for line in text.splitlines() if MARK in line]
            if hosts
            else [path.read_text() for path in folder.glob("rank-*.json")]
        )
        found = sorted((Record.model_validate_json(text) for text in texts), key=lambda record: record.rank)
        if len(found) == case.ranks:
            return found
        taken = any("address already in use" in text.lower() or "eaddrinuse" in text.lower() for text in outputs)
        if not taken or attempt == _TRIES - 1:
            break
    raise Problem(
        f"{case.label}: {len(found)} of {case.ranks} ranks answered ({reason(outputs)}): mend that, then again"
    )


def run_all(lines: Sequence[Sequence[str]], ranks: int, folder: Path) -> list[str]:
    """Run command lines at the same time, each in a session of its own; what each wrote, errors included."""
    logs = [folder / f"output-{number}.log" for number in range(len(lines))]
    processes: list[subprocess.Popen[bytes]] = []
    with _signals_raise():
        try:
            for line, log in zip(lines, logs, strict=True):
                with log.open("wb") as output:
                    processes.append(_started(line, ranks, folder, output))
            _wait(processes)
        finally:
            for process in processes:
                _end(process)
    return [log.read_text(errors="replace") for log in logs]


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Until all have ended, or one has failed: the others would wait for it."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while alive := [process for process in processes if process.poll() is None]:
        if any(process.returncode for process in processes):
            return
        if time.monotonic() > until:
            raise Problem(f"ranks did not end within {_PATIENCE_SECONDS} s: use fewer --steps or a smaller --batch")
        with suppress(subprocess.TimeoutExpired):
            alive[0].wait(timeout=0.2)


def _started(line: Sequence[str], ranks: int, folder: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
    # a torchrun that is ended leaves its temporary folder behind, which then goes with ours
    environment = processes.rank_environment(ranks) | {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    try:
        return subprocess.Popen(line, env=environment, stdout=output, stderr=output, start_new_session=True)
    except FileNotFoundError as error:
        raise Problem(f"'{line[0]}' is not installed, which starts ranks on --hosts: install it") from error


def _end(process: subprocess.Popen[bytes]) -> None:
    """torchrun and horovodrun end their ranks when told to; what does not listen is killed with its whole session."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=15)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def _signals_raise() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind as Ctrl-C does, so that no rank is left behind."""

    def raised(number: int, _: Any) -> None:
        raise KeyboardInterrupt

    try:
        previous = {number: signal.signal(number, raised) for number in (signal.SIGTERM, signal.SIGHUP)}
    except ValueError:  # not the main thread, which alone gets signals
        previous = {}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def reason(outputs: Sequence[str]) -> str:
    """The first line that names an error."""
    lines = [line.strip() for text in outputs for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "Problem" in line]
    return (errors or lines or ["no word from them"])[0][-300:]
