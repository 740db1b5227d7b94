"""One optimizer step of a global batch: learning rate, exact gradient, update."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

from torch import Tensor
from torch.optim import Optimizer

from bigbatch.position import Position
from bigbatch.training.assembly import AssembledRun
from bigbatch.training.batches import Batch
from bigbatch.training.gradient import BatchSums

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
    closure = partial(assembled.gradient.mean_loss, batch) if assembled.needs_closure else None
    sums = update_weights(
        assembled.optimizer,
        assembled.lr_at(position) if lr is None else lr,
        partial(assembled.gradient.compute, batch, position),
        around_update,
        closure,
    )
    assembled.progress = batch.after
    return sums


def update_weights(
    optimizer: Optimizer,
    lr: float,
    compute_gradient: Callable[[], Sums],
    around_update: Callable[[Sums], AbstractContextManager[Any]] = nullcontext,
    closure: Callable[[], Tensor] | None = None,
) -> Sums:
    """Set the learning rate, compute the gradient, step the optimizer; return what `compute_gradient` returns."""
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.zero_grad(set_to_none=True)
    sums = compute_gradient()
    with around_update(sums):
        if closure:
            optimizer.step(closure)  # type: ignore[arg-type]
        else:
            optimizer.step()
    return sums
