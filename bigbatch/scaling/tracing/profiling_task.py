"""The worker task of a trace: steps under the torch profiler, with marks at their phases.

A few steps warm up. Marks tell the profiler where a step, its passes and its update begin and end, and when each
gradient was computed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from bigbatch.engines import Engine
from bigbatch.run import Run
from bigbatch.scaling.ranks import WorkerTask
from bigbatch.scaling.stepper import Stepper, barrier
from bigbatch.scaling.tracing.profiler_trace import BACKWARD, FORWARD, GRADIENT, STEP, UPDATE

_WARMUP_STEPS = 4  # DDP rebuilds its buckets after the first, Horovod's cache knows all tensors after the second


class ProfilingTask(WorkerTask):
    kind: Literal["profiling"] = "profiling"
    steps: int

    def perform(self, run: Run, engine: Engine) -> str:
        """Return the Chrome trace of this rank's profiler."""
        stepper = Stepper(run, engine)
        for _ in range(_WARMUP_STEPS):
            stepper.step()
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
        with profile(activities=activities, record_shapes=True) as profiler, _mark_phases(stepper) as phases:
            barrier(engine)
            for number in range(self.steps):
                with record_function(f"{STEP} {number}"):
                    stepper.step(before_update=lambda: phases.begin(UPDATE))
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
        wrapped.register_forward_pre_hook(lambda *_: phases.begin(FORWARD)),
        wrapped.register_forward_hook(lambda *_: phases.begin(BACKWARD)),
    ]
    for name, parameter in stepper.model.named_parameters():
        if parameter.requires_grad and not stepper.engine.forward_is_collective:  # FSDP's own gradients are not shown
            # from the moment at which the gradient is computed to the moment at which the engine has it
            gradient, label = _Mark(), f"{GRADIENT} {name}"
            hooks += [
                parameter.register_hook(lambda _, mark=gradient, label=label: mark.begin(label)),
                parameter.register_post_accumulate_grad_hook(lambda _, mark=gradient: mark.end()),
            ]
    try:
        yield phases
    finally:
        for hook in hooks:
            hook.remove()
