"""Start the ranks of a worker task, here or on other hosts, and collect what each of them returns."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from bigbatch.engines import Engine
from bigbatch.errors import Problem
from bigbatch.launch import processes
from bigbatch.run import Run
from bigbatch.scaling import hosts as other_hosts

RESULT_PREFIX = "bigbatch-rank-result "  # before a result on a rank's output
_WORKER = "bigbatch.scaling.worker"
_TIMEOUT_SECONDS = 900
_ATTEMPTS = 3  # with another port each
_LAST_LINES = 15


class WorkerTask(BaseModel):
    """What every rank does with a run; `run` holds the fields of a `Run`."""

    run: dict[str, Any]

    @abstractmethod
    def perform(self, run: Run, engine: Engine) -> str:
        """Return the JSON result of this rank."""


def run_on_ranks(task: WorkerTask, ranks: int, folder: Path, *, label: str, hosts: Sequence[str] = ()) -> list[str]:
    """Return the result of each rank, by rank. `folder` takes their output, and their results unless on `hosts`."""
    messages = folder / "messages"
    messages.mkdir(exist_ok=True)
    # a torchrun that is terminated leaves its temporary folder behind, which is then removed with ours
    environment = processes.rank_environment(ranks) | {
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(folder),
        processes.MESSAGES: str(messages),
    }
    for attempt in range(_ATTEMPTS):
        if hosts:
            commands = other_hosts.rank_commands(hosts, ranks, _WORKER, [task.model_dump_json()])
        else:
            arguments = [task.model_dump_json(), str(folder)]
            engine = task.run["engine"]["name"]
            commands = [processes.rank_command(engine, ranks, _WORKER, arguments, max_restarts=0)]
        outputs = processes.run_concurrently(commands, environment, folder, _TIMEOUT_SECONDS)
        results = _printed_results(outputs) if hosts else _written_results(folder, ranks)
        if len(results) == ranks:
            return results
        port_in_use = any("address already in use" in text.lower() or "eaddrinuse" in text.lower() for text in outputs)
        if not port_in_use or attempt == _ATTEMPTS - 1:
            break
    if sentences := sorted({path.read_text() for path in messages.iterdir()}):
        raise Problem("; ".join(sentences))
    for text in outputs:
        print("\n".join(text.splitlines()[-_LAST_LINES:]), file=sys.stderr)
    raise Problem(
        f"{label}: {len(results)} of {ranks} ranks returned a result ({_first_error(outputs)}): fix that, then rerun"
    )


def _written_results(folder: Path, ranks: int) -> list[str]:
    paths = [folder / f"rank-{rank}.json" for rank in range(ranks)]
    return [path.read_text(encoding="utf-8") for path in paths if path.exists()]


def _printed_results(outputs: Sequence[str]) -> list[str]:
    """Return the results that ranks printed as `PREFIX RANK JSON`, by rank."""
    lines = [
        line.partition(RESULT_PREFIX)[2] for text in outputs for line in text.splitlines() if RESULT_PREFIX in line
    ]
    by_rank = {int(rank): result for rank, _, result in (line.partition(" ") for line in lines)}
    return [by_rank[rank] for rank in sorted(by_rank)]


def _first_error(outputs: Sequence[str]) -> str:
    """Return the first line that names an error."""
    lines = [line.strip() for text in outputs for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "Problem" in line]
    return (errors or lines or ["they printed nothing"])[0][-300:]
