"""What every rank of a trace runs: `python -m bigbatch.scaling.trace.rank TASK`, with TASK the JSON of a `Task`.

A few steps warm up; the others run under the torch profiler, which is told where a step, its passes and its update
begin and end and when each gradient was computed. Each rank leaves rank-N.json in the task's folder, or rank-N.problem
with one sentence.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from torch.profiler import ProfilerActivity, profile, record_function

from bigbatch import engines
from bigbatch.errors import Problem
from bigbatch.run import Run
from bigbatch.scaling.measured.stepper import Stepper
from bigbatch.scaling.trace.profiler import BACKWARD, FORWARD, GRADIENT, STEP, UPDATE

MODULE = "bigbatch.scaling.trace.rank"
_WARMUP_STEPS = 4  # DDP forms its buckets anew after the first, Horovod's cache knows all tensors after the second


class Task(BaseModel):
    run: dict[str, Any]
    steps: int
    folder: str


def trace(task: Task) -> None:
    run = Run(**task.run)
    engine = engines.start(run.engine)
    try:
        torch.set_num_threads(1)
        stepper = Stepper(run, engine)
        for _ in range(_WARMUP_STEPS):
            stepper.step()
        with profile(activities=_activities(), record_shapes=True) as seen, _marks(stepper) as step:
            stepper.meet()
            for number in range(task.steps):
                step(number)
            stepper.meet()
        seen.export_chrome_trace(str(Path(task.folder) / f"rank-{engine.rank}.json"))
        stepper.meet()  # Horovod ends for all when one leaves
    finally:
        engine.stop()


def _activities() -> list[ProfilerActivity]:
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]


@contextmanager
def _marks(stepper: Stepper) -> Iterator[Callable[[int], None]]:
    """A function that takes a step, with marks. Backward begins where forward ended, with the loss."""
    phase = _Phase(stepper.engine.device)
    wrapped = stepper.gradient.forward.wrapped
    hooks: list[Any] = [
        wrapped.register_forward_pre_hook(lambda *_: phase.begin(FORWARD)),
        wrapped.register_forward_hook(lambda *_: phase.begin(BACKWARD)),
    ]
    for name, parameter in stepper.model.named_parameters():
        if parameter.requires_grad and not stepper.engine.forward_is_collective:  # FSDP's gradients are its own affair
            gradient = _Gradient(name)
            hooks += [
                parameter.register_hook(gradient.computed),
                parameter.register_post_accumulate_grad_hook(gradient.handed_over),
            ]

    def step(number: int) -> None:
        with record_function(f"{STEP} {number}"):
            stepper.step(between=lambda: phase.begin(UPDATE))
            phase.end()

    try:
        yield step
    finally:
        for hook in hooks:
            hook.remove()


class _Phase:
    """The phase under way, which the next one ends. A GPU is waited for, so that the mark is where its work ends."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.under_way: record_function | None = None

    def begin(self, name: str) -> None:
        self.end()
        self.under_way = record_function(name)
        self.under_way.__enter__()

    def end(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        if self.under_way is not None:
            self.under_way.__exit__(None, None, None)
            self.under_way = None


class _Gradient:
    """From the moment a gradient is computed to the moment the engine has it."""

    def __init__(self, name: str) -> None:
        self.mark = f"{GRADIENT} {name}"
        self.under_way: record_function | None = None

    def computed(self, _: torch.Tensor) -> None:
        self.under_way = record_function(self.mark)
        self.under_way.__enter__()

    def handed_over(self, _: torch.Tensor) -> None:
        if self.under_way is not None:
            self.under_way.__exit__(None, None, None)
            self.under_way = None


def main() -> None:
    task = Task.model_validate_json(sys.argv[1])
    try:
        trace(task)
    except Problem as problem:
        (Path(task.folder) / f"rank-{engines.env_rank()}.problem").write_text(str(problem), encoding="utf-8")
    except Exception:  # whoever started the ranks misses the trace; torchrun would only start them again
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # torch's threads are sometimes not ready for the interpreter to go


if __name__ == "__main__":
    main()
