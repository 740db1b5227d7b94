"""Take single training steps of a run on one rank, without what the training loop does around them, and record them.

Recorded steps are other steps than the timed ones, which nothing disturbs. Engines that sum through torch's process
groups show their all-reduces here; Horovod's are in its timeline. FSDP communicates within both passes and does not
show when a rank's own gradients are ready, so that its waiting cannot be told from its computation.
"""
# annotations are not postponed here: torch reads those of a communication hook

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket  # torch.distributed does not export it to type checkers

from bigbatch.engines import Engine, ddp
from bigbatch.engines.local import Local
from bigbatch.position import Position
from bigbatch.run import Run
from bigbatch.scaling.phases import Bar, StepPhases, covered_time
from bigbatch.training.assembly import AssembledRun
from bigbatch.training.batches import Split
from bigbatch.training.gradient import BatchSums
from bigbatch.training.step import take_step


class WithoutCommunication(Local):
    """One rank of several that does all the computation of a rank and sends nothing: sums stay its own."""

    def __init__(self, world_size: int, rank: int = 0) -> None:
        super().__init__()
        self.rank, self.world_size = rank, world_size


class DDPWithoutCommunication(WithoutCommunication):
    """DDP's hooks and buckets: they are filled but not sent."""

    def __init__(self, world_size: int, rank: int, config: ddp.Config) -> None:
        super().__init__(world_size, rank)
        self.config = config

    def wrap(self, model: nn.Module) -> nn.Module:
        wrapped = ddp.wrap_in_ddp(model, self.config, self.device)
        wrapped.register_comm_hook(None, _keep_own_bucket)
        return wrapped


def _keep_own_bucket(state: None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def without_communication(run: Run, engine: Engine) -> Engine:
    """Return an engine that does the same on a rank, except to communicate; Horovod's cycles go on beside it."""
    if isinstance(run.engine, ddp.Config):
        return DDPWithoutCommunication(engine.world_size, engine.rank, run.engine)
    return WithoutCommunication(engine.world_size, engine.rank)


def barrier(engine: Engine) -> None:
    """Wait for all ranks."""
    engine.sum(torch.zeros(1, device=engine.device))


class Stepper(AssembledRun):
    """A run assembled on one rank, which takes single steps."""

    def __init__(self, run: Run, engine: Engine) -> None:
        super().__init__(run, engine)
        self.global_batch = self.first_global_batch()
        self.add_optimizer(Split(engine.world_size, self.global_batch // engine.world_size))

    def step(self, before_update: Callable[[], None] = lambda: None) -> None:
        """Take one step; `before_update` is called when the gradient of the global batch is complete."""

        def around_update(_: BatchSums) -> AbstractContextManager[None]:
            before_update()
            return nullcontext()

        batch = self.batches.next(self.progress, self.global_batch, self.split)
        take_step(self, batch, Position(0.0, 1.0, self.global_batch), around_update)
        self.synchronize()

    def synchronize(self) -> None:
        """Wait for a GPU, so that a time ends with its work."""
        if self.engine.device.type == "cuda":
            torch.cuda.synchronize(self.engine.device)


def record_steps(stepper: Stepper, steps: int = 1) -> list[StepPhases]:
    """Record some steps; each begins when no communication of the one before is under way.

    Hooks are removed afterwards, so that the next step is undisturbed.
    """
    all_reduce, started, summed_us = dist.all_reduce, 0.0, 0.0
    computed: list[Bar] = []
    messages: list[Bar] = []

    def now_us() -> float:
        return 1e6 * (time.perf_counter() - started)

    def forward_ended(*_: object) -> None:
        stepper.synchronize()
        add_computed("forward")

    def add_computed(label: str) -> None:
        computed.append(Bar("compute", label, computed[-1].end_us if computed else 0.0, now_us()))

    def gradient_summed() -> None:
        nonlocal summed_us
        stepper.synchronize()
        summed_us = now_us()

    def recorded_all_reduce(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        start_us, size, own_messages = now_us(), tensor.numel() * tensor.element_size(), messages

        def record(_: object = None) -> None:
            own_messages.append(Bar("communication", "all-reduce", start_us, now_us(), size))

        work = all_reduce(tensor, *arguments, **options)
        if work is None:
            record()
        else:
            work.get_future().add_done_callback(record)
        return work

    hooks: list[Any] = [stepper.gradient.forward.wrapped.register_forward_hook(forward_ended)]
    for name, parameter in stepper.model.named_parameters():
        if parameter.requires_grad and not stepper.engine.forward_is_collective:
            hooks.append(parameter.register_post_accumulate_grad_hook(lambda _, name=name: add_computed(name)))
    dist.all_reduce = recorded_all_reduce
    recorded = []
    try:
        for _ in range(steps):
            computed, messages = [], []  # new lists: an all-reduce of an earlier step may end within this one
            started_ns, started = time.time_ns(), time.perf_counter()
            stepper.step(before_update=gradient_summed)
            step_us = now_us()
            recorded.append(_describe_step(step_us, summed_us, computed, list(messages), started_ns))
            barrier(stepper.engine)
    finally:
        dist.all_reduce = all_reduce
        for hook in hooks:
            hook.remove()
    return recorded


def _describe_step(
    step_us: float, summed_us: float, computed: list[Bar], messages: list[Bar], started_ns: int
) -> StepPhases:
    """`computed` is the forward pass and, where the engine shows them, the gradients in the order of their end."""
    forward, *gradients = computed
    ready_us = gradients[-1].end_us if gradients else None
    sent = [(message.start_us, message.end_us) for message in messages]
    backward = gradients or [Bar("compute", "backward", forward.end_us, summed_us)]
    return StepPhases(
        step_us=step_us,
        forward_us=forward.end_us,
        backward_us=backward[-1].end_us - forward.end_us,
        exposed_us=None if ready_us is None else summed_us - ready_us,
        overlapped_us=None if ready_us is None else covered_time(sent, until=ready_us),
        update_us=step_us - summed_us,
        bars=(forward, *backward, Bar("compute", "update", summed_us, step_us), *messages),
        started_ns=started_ns,
    )
