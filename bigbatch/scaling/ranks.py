"""Run a function on every rank, here or on other hosts: start the ranks, and collect what each of them returns.

A rank is `python -m bigbatch.scaling.ranks TASK [FOLDER]`: TASK is JSON that names the function and holds the run and
its options. A rank writes its result to FOLDER/rank-N.json, or prints it where ranks share no folder.
"""

from __future__ import annotations

import json
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from bigbatch import engines
from bigbatch.artifacts import atomic
from bigbatch.errors import DONE, FAILED, Problem
from bigbatch.launch import processes
from bigbatch.launch.parent import MESSAGES, PARENT, end_with_parent
from bigbatch.run import Run
from bigbatch.scaling import hosts as other_hosts
from bigbatch.scaling.stepper import barrier
from bigbatch.scaling.tracing.spans import HorovodTimeline, read_timeline
from bigbatch.scaling.workload import EngineConfiguration, Workload

_RESULT_PREFIX = "bigbatch-rank-result "  # before a result on a rank's output
_TIMEOUT_SECONDS = 900
_ATTEMPTS = 3  # with another port each
_LAST_LINES = 15


@dataclass(frozen=True)
class RankResults:
    """The text that each rank returned, by rank, and Horovod's timeline of rank 0."""

    texts: list[str]
    timeline: HorovodTimeline | None = None


def run_on_ranks(
    function: Callable[..., str],
    workload: Workload,
    configuration: EngineConfiguration,
    *,
    options: Mapping[str, object],
    hosts: Sequence[str] = (),
    with_timeline: bool = False,
) -> RankResults:
    """Call `function(run, engine, **options)`, a function of a module, on every rank of a configuration."""
    with TemporaryDirectory(prefix="bigbatch-ranks-") as name:
        folder, timeline = Path(name), Path(name) / "timeline.json"
        run = workload.run(configuration, **({"timeline": str(timeline)} if with_timeline else {}))
        task = {"function": f"{function.__module__}:{function.__name__}", "run": run.model_dump(mode="json")}
        texts = _run_task(json.dumps({**task, "options": options}), configuration, folder, hosts)
        return RankResults(texts, read_timeline(timeline) if with_timeline else None)


def _run_task(task: str, configuration: EngineConfiguration, folder: Path, hosts: Sequence[str]) -> list[str]:
    ranks, messages = configuration.ranks, folder / "messages"
    messages.mkdir()
    # a torchrun that is terminated leaves its temporary folder behind, which is then removed with ours
    environment = processes.rank_environment(ranks) | {
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(folder),
        MESSAGES: str(messages),
        **({} if hosts else {PARENT: str(os.getpid())}),
    }
    for attempt in range(_ATTEMPTS):
        if hosts:
            commands = other_hosts.build_host_commands(hosts, ranks, __name__, [task])
        else:
            commands = [
                processes.rank_command(configuration.engine, ranks, __name__, [task, str(folder)], max_restarts=0)
            ]
        outputs = processes.run_concurrently(commands, environment, folder, _TIMEOUT_SECONDS)
        results = _printed_results(outputs) if hosts else _written_results(folder, ranks)
        if len(results) == ranks:
            return results
        port_in_use = any("address already in use" in text.lower() or "eaddrinuse" in text.lower() for text in outputs)
        if not port_in_use or attempt == _ATTEMPTS - 1:
            break
    if sentences := sorted({path.read_text() for path in messages.glob("rank-*")}):
        raise Problem("; ".join(sentences))
    for text in outputs:
        print("\n".join(text.splitlines()[-_LAST_LINES:]), file=sys.stderr)
    lines = [line.strip() for text in outputs for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "Problem" in line]
    first = (errors or lines or ["they printed nothing"])[0][-300:]
    raise Problem(
        f"{configuration.label}: {len(results)} of {ranks} ranks returned a result ({first}): fix that, then rerun"
    )


def _written_results(folder: Path, ranks: int) -> list[str]:
    paths = [folder / f"rank-{rank}.json" for rank in range(ranks)]
    return [path.read_text(encoding="utf-8") for path in paths if path.exists()]


def _printed_results(outputs: Sequence[str]) -> list[str]:
    """Return the results that ranks printed as `PREFIX RANK JSON`, by rank."""
    lines = (line.partition(_RESULT_PREFIX) for text in outputs for line in text.splitlines())
    by_rank = {int(rank): result for rank, _, result in (line.partition(" ") for _, found, line in lines if found)}
    return [by_rank[rank] for rank in sorted(by_rank)]


def _perform_task(task: str, folder: Path | None) -> None:
    """On each rank: call the function and hand over its result."""
    fields = json.loads(task)
    other_hosts.choose_interface()
    run = Run(**fields["run"])
    engine = engines.start(run.engine)
    try:
        torch.set_num_threads(1)
        result = pkgutil.resolve_name(fields["function"])(run, engine, **fields["options"])
        if folder is not None:
            atomic.write_text(folder / f"rank-{engine.rank}.json", result)
        for rank in range(engine.world_size if folder is None else 0):
            if rank == engine.rank:  # in turn: long lines of several ranks would be mixed
                print(f"{_RESULT_PREFIX}{rank} {result}", flush=True)
            barrier(engine)
        barrier(engine)  # Horovod ends for all ranks when one leaves
    finally:
        engine.stop()


def main() -> None:
    end_with_parent()
    code = DONE
    try:
        _perform_task(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    except Exception as error:
        code = FAILED
        if not (isinstance(error, Problem) and processes.leave_message(str(error))):
            traceback.print_exc()
    processes.exit_process(code)


if __name__ == "__main__":
    main()
