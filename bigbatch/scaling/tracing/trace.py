"""Record a few real steps of each engine: by the torch profiler on every rank, and by Horovod's own timeline."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import cast, get_args

import torch
from pydantic import BaseModel
from torch.profiler import ProfilerActivity, profile

from bigbatch.artifacts import atomic
from bigbatch.engines import Engine
from bigbatch.run import Run
from bigbatch.scaling.options import TraceOptions
from bigbatch.scaling.phases import Bar, StepPhases, Stream
from bigbatch.scaling.ranks import run_on_ranks
from bigbatch.scaling.stepper import Stepper, barrier, record_steps
from bigbatch.scaling.tracing.spans import (
    EngineRecording,
    HorovodTimeline,
    add_timeline,
    parse_profiler_trace,
    with_communication,
)
from bigbatch.scaling.workload import (
    EngineConfiguration,
    Workload,
    choose_engines,
    parse_real_workload,
    warn_if_ranks_share_cores,
)

_WARMUP_STEPS = 4  # DDP rebuilds its buckets after the first, Horovod's cache knows all tensors after the second


@dataclass(frozen=True)
class TracedStep:
    """A step of rank 0."""

    engine: str
    ranks: int
    number: int  # of the traced steps
    phases: StepPhases
    tensors: tuple[Bar, ...] = ()  # from Horovod's timeline; a bar's label is the tensor's name


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


class RankRecording(BaseModel):
    """What a rank returns: its recorded steps, and the profiler's Chrome trace."""

    steps: list[StepPhases]
    profiler_trace: str
    computing_thread: int


def trace(options: TraceOptions) -> Trace:
    """Check all options, then record steps of each engine, one engine after the other."""
    atomic.check_writable(options.out)
    engines = choose_engines(options.engines, ("ddp", *(["horovod"] if find_spec("horovod") else [])))
    model = parse_real_workload(options, engines)
    configurations = [
        EngineConfiguration(name, 1 if name == "local" else options.ranks, options.rank_batch) for name in engines
    ]
    model.gradient_bytes()  # refuses a model that cannot be built
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
    found = run_on_ranks(profile_steps, model, configuration, options={"steps": steps}, with_timeline=horovod)
    ranks = [RankRecording.model_validate_json(text) for text in found.texts]
    profiles = [
        parse_profiler_trace(one.profiler_trace, rank, one.steps, one.computing_thread)
        for rank, one in enumerate(ranks)
    ]
    return EngineRecording(configuration.engine, profiles, found.timeline)


def profile_steps(run: Run, engine: Engine, steps: int) -> str:
    """On each rank: record steps under the profiler, and return a RankRecording."""
    stepper = Stepper(run, engine)
    for _ in range(_WARMUP_STEPS):
        stepper.step()
    barrier(engine)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with profile(activities=activities, record_shapes=True) as profiler:
        recorded = record_steps(stepper, steps)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        text = path.read_text(encoding="utf-8")
    thread = threading.get_native_id()
    return RankRecording(steps=recorded, profiler_trace=text, computing_thread=thread).model_dump_json()


def fastest_step(recording: EngineRecording) -> TracedStep:
    """Return the shortest traced step of rank 0: the one that other processes disturbed least."""
    profile = recording.profiles[0]
    number, step = min(enumerate(profile.steps), key=lambda numbered: numbered[1].step_us)
    ranks = len(recording.profiles)
    if timeline := recording.timeline:
        return TracedStep(
            recording.engine, ranks, number, add_timeline(step, timeline), tuple(_tensor_bars(timeline, step))
        )
    sent = [one for one in profile.collectives() if step.started_ns <= one.start_ns < step.end_ns]
    return TracedStep(recording.engine, ranks, number, with_communication(step, sent))


def _tensor_bars(timeline: HorovodTimeline, step: StepPhases) -> Iterator[Bar]:
    """For each tensor: the time in the queue, from its gradient to its operation, and the activities after it."""
    ready_us = {bar.label: bar.end_us for bar in step.bars if bar.stream == "compute"}
    for one in timeline.between(step.started_ns, step.end_ns).activities:
        tensor = str(one.track)
        start_us, end_us = ((moment_ns - step.started_ns) / 1e3 for moment_ns in (one.start_ns, one.end_ns))
        if one.category != "negotiation" and tensor in ready_us:  # the first after the negotiation
            yield Bar("queue", tensor, min(ready_us.pop(tensor), start_us), start_us)
        if one.category in get_args(Stream):
            yield Bar(cast("Stream", one.category), tensor, start_us, end_us, one.bytes)
