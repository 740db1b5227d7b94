"""One optimizer step of a global batch: learning rate, exact gradient, update."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from bigbatch.position import Position
from bigbatch.training.assembly import AssembledRun
from bigbatch.training.batches import Batch
from bigbatch.training.gradient import BatchSums
from bigbatch.training.sam import compute_sam_gradient

Sums = TypeVar("Sums")


def take_step(
    assembled: AssembledRun,
    batch: Batch,
    position: Position,
    around_update: Callable[[BatchSums], AbstractContextManager[Any]] = nullcontext,
    lr: float | None = None,
) -> BatchSums:
    """Train on one batch and return the sums over this rank's samples.

    The optimizer updates the weights within the context that `around_update(sums)` returns: there the gradient is in
    `.grad`, and an exception keeps the weights as they are. `lr` replaces the learning rate of the run's schedule.
    """
    if assembled.dataset.train.lazy:
        coming = assembled.batches.next(batch.after, batch.global_batch, batch.split)
        assembled.gradient.forward.prefetch([batch, coming], assembled.engine.rank)
    run, gradient, optimizer = assembled.run, assembled.gradient, assembled.optimizer
    compute_gradient = partial(gradient.compute, batch, position)
    if run.sam_radius:
        compute_gradient = partial(compute_sam_gradient, gradient, run.sam_radius, compute_gradient)

    def step_optimizer() -> None:
        if run.clip_norm:
            clip_grad_norm_(assembled.model.parameters(), run.clip_norm)
        if assembled.needs_closure:
            optimizer.step(partial(gradient.mean_loss, batch))  # type: ignore[arg-type]
        else:
            optimizer.step()

    lr = assembled.lr_at(position) if lr is None else lr
    sums = update_weights(optimizer, lr, compute_gradient, around_update, step_optimizer)
    if assembled.average:
        assembled.average.update_parameters(assembled.model)
    assembled.progress = batch.after
    return sums


def update_weights(
    optimizer: Optimizer,
    lr: float,
    compute_gradient: Callable[[], Sums],
    around_update: Callable[[Sums], AbstractContextManager[Any]] = nullcontext,
    step_optimizer: Callable[[], Any] | None = None,
) -> Sums:
    """Set the learning rate, compute the gradient, step the optimizer; return what `compute_gradient` returns."""
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.zero_grad(set_to_none=True)
    sums = compute_gradient()
    with around_update(sums):
        (step_optimizer or optimizer.step)()
    return sums
