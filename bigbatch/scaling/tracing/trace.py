"""Record a few real steps of each engine under the torch profiler."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from bigbatch.artifacts import atomic
from bigbatch.scaling.options import TraceOptions
from bigbatch.scaling.ranks import run_on_ranks
from bigbatch.scaling.tracing.chrome_trace import EngineRecording
from bigbatch.scaling.tracing.horovod_timeline import read_timeline
from bigbatch.scaling.tracing.profiler_trace import parse_profiler_trace
from bigbatch.scaling.tracing.profiling_task import ProfilingTask
from bigbatch.scaling.tracing.traced_step import TracedStep, fastest_step
from bigbatch.scaling.workload import (
    EngineConfiguration,
    Workload,
    choose_engines,
    parse_real_workload,
    warn_if_ranks_share_cores,
)


@dataclass(frozen=True)
class Trace:
    """The result of `bigbatch scale trace`."""

    model: Workload
    rank_batch: int
    recordings: Sequence[EngineRecording]
    loads: Sequence[float] = field(default_factory=list)  # of one minute, before each engine

    @cached_property
    def steps(self) -> list[TracedStep]:
        return [fastest_step(recording) for recording in self.recordings]

    @property
    def scale(self) -> str:
        sample = " x ".join(map(str, self.model.sample_shape))
        return (
            f"measured under the profiler: {self.model.label}, samples of {sample}, batch {self.rank_batch} per rank, "
            f"{os.cpu_count()} cores"
        )


def trace(options: TraceOptions) -> Trace:
    """Check all options, then record steps of each engine, one engine after the other."""
    atomic.check_writable(options.out)
    engines = choose_engines(options.engines, ("ddp", *(["horovod"] if find_spec("horovod") else [])))
    model = parse_real_workload(options, engines)
    model.gradient_bytes()  # refuses a model that cannot be built
    configurations = [
        EngineConfiguration(name, 1 if name == "local" else options.ranks, options.rank_batch) for name in engines
    ]
    for one in configurations:
        model.run(one)  # refuses an option that an engine does not have
    warn_if_ranks_share_cores(options.ranks)
    recordings, loads = [], []
    for one in configurations:
        loads.append(os.getloadavg()[0])
        recordings.append(record_engine(model, one, options.steps))
    return Trace(model, options.rank_batch, recordings, loads)


def record_engine(model: Workload, configuration: EngineConfiguration, steps: int) -> EngineRecording:
    """Profile steps on all ranks of a configuration. However it ends, no process and no file is left."""
    horovod = configuration.engine == "horovod"
    with tempfile.TemporaryDirectory(prefix="bigbatch-trace-") as name:
        timeline = Path(name) / "timeline.json"
        run = model.run(configuration, **({"timeline": str(timeline)} if horovod else {}))
        task = ProfilingTask(run=run.model_dump(mode="json"), steps=steps)
        results = run_on_ranks(task, configuration.ranks, Path(name), label=configuration.label)
        return EngineRecording(
            configuration.engine,
            [parse_profiler_trace(result, rank) for rank, result in enumerate(results)],
            read_timeline(timeline) if horovod else None,
        )
