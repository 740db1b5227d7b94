"""Record a few real steps of each engine: by the torch profiler on every rank, and by Horovod's own timeline."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from bigbatch.artifacts import atomic
from bigbatch.engines import Engine
from bigbatch.run import Run
from bigbatch.scaling.options import TraceOptions
from bigbatch.scaling.ranks import run_on_ranks
from bigbatch.scaling.stepper import Stepper, barrier
from bigbatch.scaling.tracing import spans
from bigbatch.scaling.tracing.spans import EngineRecording
from bigbatch.scaling.tracing.traced_step import TracedStep, fastest_step
from bigbatch.scaling.workload import (
    EngineConfiguration,
    Workload,
    choose_engines,
    parse_real_workload,
    warn_if_ranks_share_cores,
)

_WARMUP_STEPS = 4  # DDP rebuilds its buckets after the first, Horovod's cache knows all tensors after the second


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
    profiles = [spans.parse_profiler_trace(text, rank) for rank, text in enumerate(found.texts)]
    return EngineRecording(configuration.engine, profiles, found.timeline)


def profile_steps(run: Run, engine: Engine, steps: int) -> str:
    """On each rank: return the Chrome trace of the profiler, with marks at a step, its passes and its gradients."""
    stepper = Stepper(run, engine)
    for _ in range(_WARMUP_STEPS):
        stepper.step()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with profile(activities=activities, record_shapes=True) as profiler, _mark_phases(stepper) as phases:
        barrier(engine)
        for number in range(steps):
            with record_function(f"{spans.STEP} {number}"):
                stepper.step(before_update=lambda: phases.begin(spans.UPDATE))
                phases.end()
        barrier(engine)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return path.read_text(encoding="utf-8")


class _Mark:
    """At most one mark in the trace at a time. A GPU is waited for, so that a mark ends with its work."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device
        self.current: record_function | None = None

    def begin(self, name: str) -> None:
        self.end()
        self.current = record_function(name)
        self.current.__enter__()

    def end(self) -> None:
        if self.device is not None and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        if self.current is not None:
            self.current.__exit__(None, None, None)
            self.current = None


@contextmanager
def _mark_phases(stepper: Stepper) -> Iterator[_Mark]:
    """Mark passes and gradients within the block. Backward begins where forward ended, with the loss."""
    phases = _Mark(stepper.engine.device)
    wrapped = stepper.gradient.forward.wrapped
    hooks: list[Any] = [
        wrapped.register_forward_pre_hook(lambda *_: phases.begin(spans.FORWARD)),
        wrapped.register_forward_hook(lambda *_: phases.begin(spans.BACKWARD)),
    ]
    for name, parameter in stepper.model.named_parameters():
        if parameter.requires_grad and not stepper.engine.forward_is_collective:  # FSDP's own gradients are not shown
            # from the moment at which the gradient is computed to the moment at which the engine has it
            gradient, label = _Mark(), f"{spans.GRADIENT} {name}"
            hooks += [
                parameter.register_hook(lambda _, mark=gradient, label=label: mark.begin(label)),
                parameter.register_post_accumulate_grad_hook(lambda _, mark=gradient: mark.end()),
            ]
    try:
        yield phases
    finally:
        for hook in hooks:
            hook.remove()
