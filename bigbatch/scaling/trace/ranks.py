"""Starts the ranks of one engine, waits for them, and gives back what they left."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bigbatch.errors import Problem
from bigbatch.launch import processes
from bigbatch.run import Run
from bigbatch.scaling.measured import starts
from bigbatch.scaling.trace import profiler, rank, timeline
from bigbatch.scaling.trace.merge import Recorded

_LAST_LINES = 15


def recorded(run: Run, ranks: int, steps: int) -> Recorded:
    """Real steps of a run on this many ranks. However it ends, no process and no file of it is left."""
    engine = run.engine.name
    with tempfile.TemporaryDirectory(prefix="bigbatch-trace-") as name:
        folder = Path(name)
        written = folder / "timeline.json"
        if engine == "horovod":
            run = run.with_settings([f"engine.timeline={written}"])
        task = rank.Task(run=run.model_dump(mode="json"), steps=steps, folder=name)
        line = processes.rank_command(engine, ranks, rank.MODULE, [task.model_dump_json()])
        (said,) = starts.run_all([line], ranks, folder)
        problems = sorted({path.read_text(encoding="utf-8") for path in folder.glob("*.problem")})
        if problems:
            raise Problem("; ".join(problems))
        paths = [folder / f"rank-{number}.json" for number in range(ranks)]
        if not all(path.exists() for path in paths):
            print("\n".join(said.splitlines()[-_LAST_LINES:]), file=sys.stderr)
            raise Problem(
                f"a rank of engine '{engine}' ended without a trace (its last words are above): mend that, then again"
            )
        return Recorded(
            engine,
            [profiler.read(path, number) for number, path in enumerate(paths)],
            timeline.read(written) if engine == "horovod" else None,
        )
