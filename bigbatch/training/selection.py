"""The gradient of a global batch whose samples a selector weights: Σ wᵢ·lossᵢ / n, with n counting all samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bigbatch import selectors
from bigbatch.position import Position, Slice
from bigbatch.training.batches import Batch

if TYPE_CHECKING:
    from bigbatch.training.gradient import BatchSums, GlobalGradient


def backward_selected(gradient: GlobalGradient, batch: Batch, position: Position, sums: BatchSums) -> None:
    """Compute losses, then weights, then a backward pass over the samples whose weight is not zero."""
    engine, forward, statistics = gradient.engine, gradient.forward, gradient.statistics
    own = batch.by_rank[engine.rank]
    if not gradient.run.selector.reads_losses:
        _backward_with_known_weights(gradient, batch, position, sums)
        return
    one_pass = gradient.run.selector.selects_in_one_pass
    first_pass = statistics.accumulate(len(own), batch.micro_batches) if one_pass else statistics.frozen()
    losses_by_micro_batch: list[Tensor] = []
    with first_pass, torch.set_grad_enabled(one_pass), engine.no_sync(forward.wrapped):
        for micro_batch in own:
            losses, correct = forward(batch, micro_batch.of(batch.indices), micro_batch)
            if one_pass:
                statistics.detach_from_graph()
            sums.add(losses, correct, 0)
            losses_by_micro_batch.append(losses)
    weights = _weight_samples(gradient, batch, losses_by_micro_batch, position)
    sums.kept = sum(int(micro_batch.of(weights).count_nonzero()) for micro_batch in own)
    with engine.no_sync(forward.wrapped):
        if one_pass:
            _backward_kept(batch, own, losses_by_micro_batch, weights)
        else:
            _forward_and_backward_kept(gradient, batch, weights)
    engine.sum_gradients(gradient.model)


def _backward_with_known_weights(gradient: GlobalGradient, batch: Batch, position: Position, sums: BatchSums) -> None:
    """Micro-batch by micro-batch: the weights are known before the losses."""
    engine, forward, own = gradient.engine, gradient.forward, batch.by_rank[gradient.engine.rank]
    no_losses = torch.zeros(batch.count, dtype=torch.float64, device=engine.device)
    weights = selectors.weights(no_losses, gradient.run.selector, position)
    with gradient.statistics.accumulate(len(own), batch.micro_batches), engine.no_sync(forward.wrapped):
        for micro_batch in own:
            losses, correct = forward(batch, micro_batch.of(batch.indices), micro_batch)
            its_weights = micro_batch.of(weights)
            sums.add(losses, correct, int(its_weights.count_nonzero()))
            ((losses * its_weights.to(losses.dtype)).sum() / batch.count).backward()
    engine.sum_gradients(gradient.model)


def _weight_samples(gradient: GlobalGradient, batch: Batch, losses: list[Tensor], position: Position) -> Tensor:
    """One weight for each sample of the global batch, by all of its losses or by those of the sample's rank."""
    engine, selector = gradient.engine, gradient.run.selector
    own = batch.by_rank[engine.rank]
    mine = slice(own[0].start, own[-1].stop) if own else slice(0, 0)
    # float64 on every rank, also on one that has no samples to take a dtype from
    all_losses = torch.zeros(batch.count, dtype=torch.float64, device=engine.device)
    if own:
        all_losses[mine] = torch.cat([own_losses.detach().double() for own_losses in losses])
    if not selector.selects_per_rank:
        return selectors.weights(engine.sum(all_losses), selector, position)
    weights = torch.zeros_like(all_losses)
    weights[mine] = selectors.weights(all_losses[mine], selector, position)
    return engine.sum(weights)


def _backward_kept(batch: Batch, own: Sequence[Slice], losses_by_micro_batch: list[Tensor], weights: Tensor) -> None:
    """Through the graphs of the first pass."""
    with selectors.skip_zero_rows():
        for micro_batch, losses in zip(own, losses_by_micro_batch, strict=True):
            its_weights = micro_batch.of(weights)
            kept = its_weights.nonzero().squeeze(1)
            if len(kept):
                ((losses[kept] * its_weights[kept]).sum() / batch.count).backward()


def _forward_and_backward_kept(gradient: GlobalGradient, batch: Batch, weights: Tensor) -> None:
    """A second pass over the kept samples in the batch's order, divided as if they were the batch.

    The result is the same on any number of ranks.
    """
    kept = weights.nonzero().squeeze(1)
    by_rank = batch.split.slices(len(kept))
    own = by_rank[gradient.engine.rank]
    with gradient.statistics.accumulate(len(own), sum(len(others) for others in by_rank)):
        for micro_batch in own:
            samples = micro_batch.of(kept)
            losses, _ = gradient.forward(batch, batch.indices[samples.cpu()], micro_batch)
            ((losses * weights[samples]).sum() / batch.count).backward()
