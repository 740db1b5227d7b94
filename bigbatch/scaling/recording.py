"""Record the phases of real steps: hooks on the passes and gradients, and a wrapper around torch's all-reduce.

Recorded steps are other steps than the timed ones, which nothing disturbs. Engines that sum through torch's process
groups show their all-reduces here; Horovod's are in its timeline. FSDP communicates within both passes and does not
show when a rank's own gradients are ready, so that its waiting cannot be told from its computation.
"""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from bigbatch.scaling.phases import Bar, StepPhases, covered_time
from bigbatch.scaling.stepper import Stepper, barrier


class StepRecorder:
    """Records each step that is taken within its `with` block."""

    def __init__(self, stepper: Stepper) -> None:
        self.stepper = stepper
        self._started = self._forward_us = self._summed_us = 0.0
        self._gradients: list[tuple[str, float]] = []  # parameters in the order in which their gradients were ready
        self._messages: list[Bar] = []

    def __enter__(self) -> StepRecorder:
        self._hooks: list[Any] = [self.stepper.gradient.forward.wrapped.register_forward_hook(self._forward_ended)]
        if not self.stepper.engine.forward_is_collective:
            self._hooks += [
                parameter.register_post_accumulate_grad_hook(lambda _, name=name: self._gradient_ready(name))
                for name, parameter in self.stepper.model.named_parameters()
                if parameter.requires_grad
            ]
        self._all_reduce = dist.all_reduce
        dist.all_reduce = self._recorded_all_reduce
        return self

    def __exit__(self, *_: object) -> None:
        dist.all_reduce = self._all_reduce
        for hook in self._hooks:
            hook.remove()

    def record_step(self) -> StepPhases:
        # new lists: an all-reduce of an earlier step may end within this one
        self._gradients, self._messages = [], []
        started_ns, self._started = time.time_ns(), time.perf_counter()
        self.stepper.step(before_update=self._gradient_summed)
        step_us = self._now_us()
        messages, forward_us, summed_us = list(self._messages), self._forward_us, self._summed_us
        ready_us = self._gradients[-1][1] if self._gradients else None
        bars = [Bar("compute", "forward", 0.0, forward_us)]
        for name, moment_us in self._gradients or [("backward", summed_us)]:
            bars.append(Bar("compute", name, bars[-1].end_us, moment_us))
        sent = [(message.start_us, message.end_us) for message in messages]
        return StepPhases(
            step_us=step_us,
            forward_us=forward_us,
            backward_us=(summed_us if ready_us is None else ready_us) - forward_us,
            exposed_us=None if ready_us is None else summed_us - ready_us,
            overlapped_us=None if ready_us is None else covered_time(sent, until=ready_us),
            update_us=step_us - summed_us,
            bars=(*bars, Bar("compute", "update", summed_us, step_us), *messages),
            started_ns=started_ns,
        )

    def _now_us(self) -> float:
        return 1e6 * (time.perf_counter() - self._started)

    def _forward_ended(self, *_: Any) -> None:
        self._forward_us = self._now_us()

    def _gradient_ready(self, name: str) -> None:
        self._gradients.append((name, self._now_us()))

    def _gradient_summed(self) -> None:
        self._summed_us = self._now_us()

    def _recorded_all_reduce(self, tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        start_us, size, messages = self._now_us(), tensor.numel() * tensor.element_size(), self._messages

        def record(_: object = None) -> None:
            messages.append(Bar("communication", "all-reduce", start_us, self._now_us(), size))

        work = self._all_reduce(tensor, *arguments, **options)
        if work is None:
            record()
        else:
            work.get_future().add_done_callback(record)
        return work


def record_steps(stepper: Stepper, steps: int) -> list[StepPhases]:
    """Record some steps; each begins when no communication of the one before is under way."""
    recorded = []
    with StepRecorder(stepper) as recorder:
        for _ in range(steps):
            recorded.append(recorder.record_step())
            barrier(stepper.engine)
    return recorded
