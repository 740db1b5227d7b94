"""The exact gradient of a global batch: Σ loss over its samples / their number, however they are divided."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bigbatch import keyed, losses
from bigbatch.batches import Batch, Batches, Slice
from bigbatch.batchnorm import RunningStatistics
from bigbatch.carried import CarriedState
from bigbatch.engines import Engine
from bigbatch.run import Run


class GlobalGradient:
    """Forward and backward over one rank's micro-batches; gradients meet once a global batch."""

    def __init__(self, run: Run, batches: Batches, model: nn.Module, engine: Engine) -> None:
        self.run = run
        self.batches = batches
        self.model = model
        self.engine = engine
        self.wrapped = engine.wrap(model)
        self.statistics = RunningStatistics(model, engine)
        self.carried: CarriedState | None = None
        self.cast = precision(run, engine)

    def of(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Leaves the gradient in `.grad` on every rank; returns Σ loss and Σ hits over this rank's samples."""
        own = batch.by_rank[self.engine.rank]
        loss_sum = torch.zeros((), device=self.engine.device)
        hits = torch.zeros((), device=self.engine.device)
        with self.statistics.over(len(own), batch.micro_batches):
            for piece in own:
                sends = piece is own[-1] and batch.every_rank_has_work
                with nullcontext() if sends else self.engine.accumulating(self.wrapped):
                    sample_losses, piece_hits = self._forward(batch, piece)
                    (sample_losses.sum() / batch.count).backward()
                loss_sum += sample_losses.detach().sum()
                hits += piece_hits
            if not batch.every_rank_has_work:
                self.engine.sum_gradients(self.model)
        if batch.epoch_ends:
            self.carried = None
        return loss_sum, hits

    def _forward(self, batch: Batch, piece: Slice) -> tuple[Tensor, Tensor]:
        samples = self.batches.samples(batch.global_batch)
        inputs, targets = samples.fetch(batch.indices[piece.start : piece.stop], seed=self.run.seed, epoch=batch.epoch)
        inputs, targets = to_model(inputs, self.model, self.engine.device), targets.to(self.engine.device)
        keyed.seed_torch(self.run.seed, batch.after.step, piece.start, keyed.DROPOUT)
        with self.cast():
            if samples.sequential:
                self.carried = self.carried or CarriedState(batch.global_batch)
                logits, state = self.wrapped(inputs, self.carried.take(piece))
                self.carried.put(piece, state)
            else:
                logits = self.wrapped(inputs)
        return losses.per_sample(logits, targets), losses.hits(logits, targets)

    def seconds_for(self, count: int, global_batch: int) -> float:
        """Time one micro-batch, forward and backward, and leave no trace of it in the model."""
        samples = self.batches.samples(global_batch)
        inputs, targets = samples.fetch(torch.arange(count) % len(samples))
        inputs, targets = to_model(inputs, self.model, self.engine.device), targets.to(self.engine.device)
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        _wait(self.engine.device)
        started = time.perf_counter()
        with self.cast():
            logits = self.model(inputs)
        losses.per_sample(logits[0] if samples.sequential else logits, targets).sum().backward()
        _wait(self.engine.device)
        elapsed = time.perf_counter() - started
        self.model.zero_grad(set_to_none=True)
        for buffer, before in zip(self.model.buffers(), buffers, strict=True):
            buffer.copy_(before)
        return elapsed


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
