"""What happens when within a step: hooks note the passes and the gradients, a wrapper notes each all-reduce.

Steps with notes are other steps than the timed ones, which nothing disturbs. Engines that sum through torch's
process groups show their all-reduces here; Horovod's are in its timeline. FSDP sends within both passes and has
no moment at which a rank's own gradients are ready, so that its waiting cannot be told from its passes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from pydantic import BaseModel

from bigbatch.scaling.measured.stepper import Stepper


class Sent(BaseModel):
    """One all-reduce, in seconds from the start of the step."""

    start_s: float
    end_s: float
    bytes: int


class Noted(BaseModel):
    """One step in seconds from its start. `exposed_s`: waited after the rank's own last gradient was ready."""

    started_ns: int  # since 1970
    forward_s: float
    backward_s: float
    exposed_s: float | None
    overlapped_s: float | None  # communication while the rank still computed
    update_s: float
    negotiation_s: float | None = None  # Horovod: while any tensor was being agreed on
    sent: list[Sent] = []


def noted(stepper: Stepper, steps: int) -> list[Noted]:
    """Some more steps, with notes."""
    found = []
    with _noting(stepper) as notes:
        for _ in range(steps):
            notes.begin()
            stepper.step(between=notes.summed)
            found.append(notes.end())
            stepper.meet()  # the next step's notes begin with nothing under way
    return found


class _Notes:
    def begin(self) -> None:
        self.started_ns, self.started = time.time_ns(), time.perf_counter()
        self.forward_s = self.summed_s = 0.0
        self.ready_s: float | None = None
        self.sent: list[Sent] = []

    def now(self) -> float:
        return time.perf_counter() - self.started

    def forward(self, *_: Any) -> None:
        self.forward_s = self.now()

    def gradient(self, *_: Any) -> None:
        self.ready_s = self.now()

    def summed(self) -> None:
        self.summed_s = self.now()

    def end(self) -> Noted:
        ready_s, sent = self.ready_s, list(self.sent)
        backward_end_s = self.summed_s if ready_s is None else ready_s
        return Noted(
            started_ns=self.started_ns,
            forward_s=self.forward_s,
            backward_s=backward_end_s - self.forward_s,
            exposed_s=None if ready_s is None else self.summed_s - ready_s,
            overlapped_s=None if ready_s is None else overlapped_s(sent, ready_s),
            update_s=self.now() - self.summed_s,
            sent=sent,
        )


def overlapped_s(sent: list[Sent], until_s: float) -> float:
    """The time before `until_s` in which at least one all-reduce was under way."""
    total = covered_to = 0.0
    for one in sorted(sent, key=lambda one: one.start_s):
        start_s, end_s = max(one.start_s, covered_to), min(one.end_s, until_s)
        total += max(0.0, end_s - start_s)
        covered_to = max(covered_to, end_s)
    return total


@contextmanager
def _noting(stepper: Stepper) -> Iterator[_Notes]:
    notes = _Notes()
    notes.begin()
    hooks = [stepper.gradient.forward.wrapped.register_forward_hook(notes.forward)]
    hooks += [
        parameter.register_post_accumulate_grad_hook(notes.gradient)
        for parameter in stepper.model.parameters()
        if parameter.requires_grad and not stepper.engine.forward_is_collective
    ]
    plain = dist.all_reduce

    def all_reduce(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        start_s = notes.now()
        size = tensor.numel() * tensor.element_size()
        sent = notes.sent
        work = plain(tensor, *arguments, **options)
        if work is None:
            sent.append(Sent(start_s=start_s, end_s=notes.now(), bytes=size))
        else:
            work.get_future().add_done_callback(
                lambda _: sent.append(Sent(start_s=start_s, end_s=notes.now(), bytes=size))
            )
        return work

    dist.all_reduce = all_reduce
    try:
        yield notes
    finally:
        dist.all_reduce = plain
        for hook in hooks:
            hook.remove()
