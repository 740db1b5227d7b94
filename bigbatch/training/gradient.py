"""The exact gradient of a global batch: Σ loss over its samples / their number, however they are divided."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bigbatch import selectors
from bigbatch.engines import Engine
from bigbatch.errors import Problem
from bigbatch.position import Position
from bigbatch.run import Run
from bigbatch.training.batches import Batch, Batches
from bigbatch.training.batchnorm import RunningStatisticsUpdater
from bigbatch.training.exact_sum import ExactSum
from bigbatch.training.forward import MicroBatchForward
from bigbatch.training.micro_gradients import MicroGradients
from bigbatch.training.selection import backward_selected


@dataclass
class BatchSums:
    """Sums over the samples of one rank. Tensors, so that a GPU is not waited for at every micro-batch."""

    loss: Tensor | float = 0.0
    correct: Tensor | float = 0.0
    kept: int = 0  # samples that were learned from

    def add(self, losses: Tensor, correct: Tensor, kept: int) -> None:
        self.loss = self.loss + losses.detach().sum(dtype=torch.float64)
        self.correct = self.correct + correct
        self.kept += kept


class GlobalGradient:
    """Forward and backward over one rank's micro-batches, and one sum over ranks per global batch."""

    def __init__(self, run: Run, batches: Batches, model: nn.Module, engine: Engine) -> None:
        if run.selector.name != "all" and batches.dataset.train.sequential:
            raise Problem(f"selector '{run.selector.name}' leaves out samples, but text is one stream: use 'all'")
        self.run = run
        self.model = model
        self.engine = engine
        self.forward = MicroBatchForward(run, batches, model, engine)
        self.statistics = RunningStatisticsUpdater(model, engine)
        self.micro_gradients: MicroGradients | None = None  # set where a probe reads them
        # DDP waits for the gradients of unused parameters
        self.every_parameter_used = engine.world_size == 1 or self.forward.uses_every_parameter()

    def wrap(self, probed: bool = False) -> None:
        """Let the engine wrap the model. From here on calling it may communicate."""
        if self.engine.forward_is_collective and self.run.selector.weights_samples:
            raise Problem(
                f"with selector '{self.run.selector.name}' ranks call the model a different number of times, which "
                f"engine '{self.run.engine.name}' does not support: use --set engine=ddp, or --set selector=all"
            )
        if self.engine.forward_is_collective and (probed or self.run.probes):
            raise Problem(
                f"probes need whole weights, but engine '{self.run.engine.name}' shards them: "
                "use --set engine=ddp, or --set probes=[]"
            )
        if self.run.reduction == "exact":
            if self.engine.forward_is_collective or self.run.selector.weights_samples:
                raise Problem(
                    f"reduction=exact needs engine local, ddp or horovod, and selector all, but the run has "
                    f"'{self.run.engine.name}' and '{self.run.selector.name}': use --set reduction=float"
                )
            if self.run.micro_batch == self.run.batchnorm_group == "auto":
                raise Problem("reduction=exact needs micro-batches of one size: use --set micro_batch=64")
        self.forward.wrapped = self.engine.wrap(self.model)

    def compute(self, batch: Batch, position: Position) -> BatchSums:
        """Leave the gradient in `.grad` on every rank and return the sums over this rank's samples."""
        sums = BatchSums()
        if self.run.selector.weights_samples:
            backward_selected(self, batch, position, sums)
        else:
            self._backward_all(batch, sums)
        selectors.edit_gradients(self.model.parameters(), self.run.selector)
        return sums

    def _backward_all(self, batch: Batch, sums: BatchSums) -> None:
        own = batch.by_rank[self.engine.rank]
        # where forward passes communicate, a rank with fewer micro-batches makes calls without an effect
        idle = max(map(len, batch.by_rank)) - len(own) if self.engine.forward_is_collective else 0
        with self.statistics.accumulate(len(own), batch.micro_batches):
            # the last backward pass sums over ranks, unless a rank has none or a probe reads each gradient by itself
            exact = ExactSum(self.model) if self.run.reduction == "exact" else None
            sums_in_backward = self.engine.forward_is_collective or (
                self.every_parameter_used and batch.every_rank_has_work and not self.micro_gradients and not exact
            )
            for micro_batch in own:
                sync = sums_in_backward and micro_batch is own[-1] and not idle
                with nullcontext() if sync else self.engine.no_sync(self.forward.wrapped):
                    losses, correct = self.forward(batch, micro_batch.of(batch.indices), micro_batch)
                    recorder = self.micro_gradients
                    with recorder.record(micro_batch.count, batch.count) if recorder else nullcontext():
                        (losses.sum() / batch.count).backward()
                if exact:
                    exact.add()
                sums.add(losses, correct, micro_batch.count)
            for number in range(idle):
                with nullcontext() if number == idle - 1 else self.engine.no_sync(self.forward.wrapped):
                    self._backward_nothing()
            if exact:
                exact.reduce(self.engine)
            elif not sums_in_backward:
                self.engine.sum_gradients(self.model)
        if batch.epoch_ends:
            self.forward.hidden_state = None

    def _backward_nothing(self) -> None:
        """A forward and a backward pass that add nothing, while other ranks have samples left."""
        with self.statistics.frozen():
            logits = self.forward.call_on_two_samples()
        (logits.sum() * 0).backward()

    def mean_loss(self, batch: Batch) -> Tensor:
        """The batch's mean loss with its graph, for optimizers that differentiate it by themselves."""
        own = batch.by_rank[self.engine.rank]
        with self.statistics.frozen():
            losses = [self.forward(batch, micro_batch.of(batch.indices), micro_batch)[0].sum() for micro_batch in own]
        return torch.stack(losses).sum() / batch.count
