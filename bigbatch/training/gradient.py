"""The exact gradient of a global batch: Σ loss over its samples / their number, however they are divided."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from bigbatch import rng, selectors
from bigbatch.datasets._workers import Prefetcher, Request
from bigbatch.engines import Engine
from bigbatch.errors import Problem
from bigbatch.losses import count_correct, per_sample_loss
from bigbatch.position import Position
from bigbatch.run import Run
from bigbatch.training.batches import Batch, Batches, Slice
from bigbatch.training.batchnorm import RunningStatistics
from bigbatch.training.hidden_state import HiddenState


@dataclass
class Sums:
    """Over the samples of one rank. Tensors, so that a GPU is not waited for at every micro-batch."""

    loss: Tensor | float = 0.0
    hits: Tensor | float = 0.0
    kept: int = 0  # samples that were learned from

    def add(self, losses: Tensor, hits: Tensor, kept: int) -> None:
        self.loss = self.loss + losses.detach().sum(dtype=torch.float64)
        self.hits = self.hits + hits
        self.kept += kept


class MicroGradients:
    """The squared norm of each micro-batch's own mean gradient, tensor by tensor, taken on its way into the sum."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.counts: list[int] = []
        self.squared_norms: list[Tensor] = []  # [tensors] each

    @contextmanager
    def of(self, count: int, batch_count: int) -> Iterator[None]:
        """Around the backward pass of `count` samples whose losses are divided by `batch_count`."""
        before = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        yield
        norms = torch.zeros(len(self.parameters), dtype=torch.float64, device=self.parameters[0].device)
        used = [number for number, parameter in enumerate(self.parameters) if parameter.grad is not None]
        own = [cast(Tensor, self.parameters[number].grad) for number in used]
        norms[used] = torch.stack(torch._foreach_norm(own, dtype=torch.float64))
        self.counts.append(count)
        self.squared_norms.append(norms.square() * (batch_count / count) ** 2)
        for parameter, sum_before in zip(self.parameters, before, strict=True):
            if sum_before is not None:  # added to in place, as a backward pass would have
                parameter.grad = sum_before if parameter.grad is None else sum_before.add_(parameter.grad)


class GlobalGradient:
    """Forward and backward over one rank's micro-batches; gradients meet once a global batch."""

    def __init__(self, run: Run, batches: Batches, model: nn.Module, engine: Engine) -> None:
        if run.selector.name != "all" and batches.dataset.task == "language":
            raise Problem(f"selector '{run.selector.name}' leaves out samples, but text is one stream: use 'all'")
        self.run = run
        self.batches = batches
        self.model = model
        self.engine = engine
        self.wrapped = model
        self.statistics = RunningStatistics(model, engine)
        self.carried: HiddenState | None = None
        self.micro_gradients: MicroGradients | None = None  # set where a probe wants to see them
        self.cast = precision(run, engine)
        self.prefetcher = Prefetcher(batches.dataset.train) if batches.dataset.train.lazy else None
        self.every_parameter_used = (
            engine.world_size == 1 or self._uses_every_parameter()
        )  # DDP would wait for the others

    def wrap(self, probed: bool = False) -> None:
        """From here on ranks meet in a call of the model: for when one rank has timed and tried what it does alone."""
        if self.engine.forward_is_collective and selectors.weighs_samples(self.run.selector):
            raise Problem(
                f"selector '{self.run.selector.name}' lets ranks call the model unlike often, which engine "
                f"'{self.run.engine.name}' does not bear: use --set engine=ddp, or --set selector=all"
            )
        if self.engine.forward_is_collective and (probed or self.run.probes):
            raise Problem(
                f"probes look at whole weights, which engine '{self.run.engine.name}' divides: "
                "use --set engine=ddp, or --set probes=[]"
            )
        self.wrapped = self.engine.wrap(self.model)

    def expect(self, coming: Sequence[Batch]) -> None:
        """Let the dataset's worker processes, where it has any, decode what will be asked for next."""
        if self.prefetcher:
            self.prefetcher.expect(
                Request.of(batch.indices[piece.start : piece.stop], seed=self.run.seed, epoch=batch.epoch)
                for batch in coming
                for piece in batch.by_rank[self.engine.rank]
            )

    def close(self) -> None:
        if self.prefetcher:
            self.prefetcher.close()

    def of(self, batch: Batch, position: Position) -> Sums:
        """Leaves the gradient in `.grad` on every rank; returns sums over this rank's samples."""
        if selectors.weighs_samples(self.run.selector):
            sums = self._of_selected(batch, position)
        else:
            sums = self._of_all(batch)
        selectors.edit_gradients(self.model.parameters(), self.run.selector)
        return sums

    def _of_all(self, batch: Batch) -> Sums:
        own = batch.by_rank[self.engine.rank]
        idle = max(len(pieces) for pieces in batch.by_rank) - len(own) if self.engine.forward_is_collective else 0
        sums = Sums()
        with self.statistics.over(len(own), batch.micro_batches):
            # gradients travel with the last backward pass, unless a rank has none or each one is looked at by itself
            with_backward = self.engine.forward_is_collective or (
                self.every_parameter_used and batch.every_rank_has_work and self.micro_gradients is None
            )
            for piece in own:
                sends = with_backward and piece is own[-1] and not idle
                with nullcontext() if sends else self.engine.no_sync(self.wrapped):
                    losses, hits = self._forward(batch, batch.indices[piece.start : piece.stop], piece)
                    with self.micro_gradients.of(piece.count, batch.count) if self.micro_gradients else nullcontext():
                        (losses.sum() / batch.count).backward()
                sums.add(losses, hits, piece.count)
            for number in range(idle):
                with nullcontext() if number == idle - 1 else self.engine.no_sync(self.wrapped):
                    self._keep_step()
            if not with_backward:
                self.engine.sum_gradients(self.model)
        if batch.epoch_ends:
            self.carried = None
        return sums

    def _keep_step(self) -> None:
        """A call and a backward pass that add nothing, where other ranks have samples left."""
        inputs, _ = self.batches.samples(2).fetch(torch.arange(2))
        with self.statistics.unchanged(), self.cast():
            logits = self.wrapped(to_model(inputs, self.model, self.engine.device))
        ((logits if isinstance(logits, Tensor) else logits[0]).sum() * 0).backward()

    def loss(self, batch: Batch) -> Tensor:
        """The batch's mean loss with its whole graph, for optimizers that differentiate it by themselves."""
        own = batch.by_rank[self.engine.rank]
        with self.statistics.unchanged():
            pieces = [self._forward(batch, batch.indices[piece.start : piece.stop], piece)[0].sum() for piece in own]
        return torch.stack(pieces).sum() / batch.count

    def _of_selected(self, batch: Batch, position: Position) -> Sums:
        """Losses first, then weights, then a backward pass over the samples that have one."""
        own = batch.by_rank[self.engine.rank]
        one_pass = getattr(self.run.selector, "passes", "two") == "one"
        first_pass = self.statistics.over(len(own), batch.micro_batches) if one_pass else self.statistics.unchanged()
        sums, graphs = Sums(), []
        with first_pass, torch.set_grad_enabled(one_pass), self.engine.no_sync(self.wrapped):
            for piece in own:
                losses, hits = self._forward(batch, batch.indices[piece.start : piece.stop], piece)
                if one_pass:
                    self.statistics.leave_to_graph()
                sums.add(losses, hits, 0)
                graphs.append(losses)
        weights = self._weights(batch, own, graphs, position)
        sums.kept = sum(int(weights[piece.start : piece.stop].count_nonzero()) for piece in own)
        with self.engine.no_sync(self.wrapped):
            if one_pass:
                self._backward_of_kept(batch, own, graphs, weights)
            else:
                self._second_pass(batch, weights)
        self.engine.sum_gradients(self.model)
        return sums

    def _weights(self, batch: Batch, own: Sequence[Slice], losses: list[Tensor], position: Position) -> Tensor:
        """One weight for each sample of the global batch, by its losses or by those of the sample's rank."""
        mine = slice(own[0].start, own[-1].stop) if own else slice(0, 0)
        # float64 on every rank, also on one that has no samples to take a type from
        all_losses = torch.zeros(batch.count, dtype=torch.float64, device=self.engine.device)
        if own:
            all_losses[mine] = torch.cat([piece.detach().double() for piece in losses])
        if getattr(self.run.selector, "scope", "global") == "global":
            return selectors.weights(self.engine.sum(all_losses), self.run.selector, position)
        weights = torch.zeros_like(all_losses)
        weights[mine] = selectors.weights(all_losses[mine], self.run.selector, position)
        return self.engine.sum(weights)

    def _backward_of_kept(self, batch: Batch, own: Sequence[Slice], graphs: list[Tensor], weights: Tensor) -> None:
        with selectors.skip_zero_rows():
            for piece, losses in zip(own, graphs, strict=True):
                piece_weights = weights[piece.start : piece.stop]
                kept = piece_weights.nonzero().squeeze(1)
                if len(kept):
                    ((losses[kept] * piece_weights[kept]).sum() / batch.count).backward()

    def _second_pass(self, batch: Batch, weights: Tensor) -> None:
        """The kept samples in the batch's order, divided as if they were the batch: the same on any number of ranks."""
        kept = weights.nonzero().squeeze(1)
        by_rank = batch.split.slices(len(kept))
        own = by_rank[self.engine.rank]
        with self.statistics.over(len(own), sum(len(pieces) for pieces in by_rank)):
            for piece in own:
                samples = kept[piece.start : piece.stop]
                losses, _ = self._forward(batch, batch.indices[samples.cpu()], piece)
                ((losses * weights[samples]).sum() / batch.count).backward()

    def _forward(self, batch: Batch, indices: Tensor, piece: Slice) -> tuple[Tensor, Tensor]:
        """Losses and hits of some samples; dropout depends on the step and on the micro-batch's place alone."""
        samples = self.batches.samples(batch.global_batch)
        if self.prefetcher:
            inputs, targets = self.prefetcher.get(Request.of(indices, seed=self.run.seed, epoch=batch.epoch))
        else:
            inputs, targets = samples.fetch(indices, seed=self.run.seed, epoch=batch.epoch)
        inputs, targets = to_model(inputs, self.model, self.engine.device), targets.to(self.engine.device)
        rng.seed_torch(self.run.seed, batch.after.step, piece.start, rng.DROPOUT)
        with self.cast():
            if samples.sequential:
                self.carried = self.carried or HiddenState(batch.global_batch)
                logits, state = self.wrapped(inputs, self.carried.take(piece))
                self.carried.put(piece, state)
            else:
                logits = self._logits(inputs)
        return per_sample_loss(logits, targets), count_correct(logits, targets)

    def _logits(self, inputs: Tensor) -> Tensor:
        try:
            return self.wrapped(inputs)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise Problem(
                "BatchNorm has nothing to normalise a batch of one sample by, like the last one of an epoch here: "
                "use another global_batch, which leaves more"
            ) from error

    def seconds_for(self, count: int, global_batch: int) -> float:
        """The time of one micro-batch, forward and backward."""
        samples = self.batches.samples(global_batch)
        inputs, targets = samples.fetch(torch.arange(count) % len(samples))
        with self._tried(inputs, targets) as seconds:
            return seconds

    def _uses_every_parameter(self) -> bool:
        inputs, targets = self.batches.samples(2).fetch(torch.arange(2))
        with self._tried(inputs, targets):
            return all(p.grad is not None for p in self.model.parameters() if p.requires_grad)

    @contextmanager
    def _tried(self, inputs: Tensor, targets: Tensor) -> Iterator[float]:
        """Forward and backward, for the time they take and the gradients they leave; afterwards no trace of it."""
        inputs, targets = to_model(inputs, self.model, self.engine.device), targets.to(self.engine.device)
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        _wait(self.engine.device)
        started = time.perf_counter()
        with self.cast():
            logits = self.model(inputs)
        per_sample_loss(logits if isinstance(logits, Tensor) else logits[0], targets).sum().backward()
        _wait(self.engine.device)
        try:
            yield time.perf_counter() - started
        finally:
            self.model.zero_grad(set_to_none=True)
            for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(before)


def precision(run: Run, engine: Engine) -> Callable[[], AbstractContextManager[Any]]:
    """The context in which the model is called."""
    if run.dtype == "bfloat16":
        return partial(torch.autocast, engine.device.type, torch.bfloat16)
    return nullcontext


def to_model(inputs: Tensor, model: nn.Module, device: torch.device) -> Tensor:
    """Inputs where the model is, and in its precision where they are not word numbers."""
    if inputs.is_floating_point():
        return inputs.to(device, next(model.parameters()).dtype, non_blocking=True)
    return inputs.to(device, non_blocking=True)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
