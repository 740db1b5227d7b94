"""The forward pass of one micro-batch: fetch, move, seed dropout, cast, call the model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends import mkldnn

from bigbatch import rng
from bigbatch.datasets.reading.prefetch import FetchRequest, Prefetcher
from bigbatch.engines import Engine
from bigbatch.errors import Problem
from bigbatch.losses import count_correct, per_sample_loss
from bigbatch.models import move_inputs
from bigbatch.position import Slice
from bigbatch.run import Run
from bigbatch.training.batches import Batch, Batches
from bigbatch.training.hidden_state import HiddenState

Autocast = Callable[[], AbstractContextManager[Any]]


def autocast_for(run: Run, device: torch.device) -> Autocast:
    """The context in which the model is called: bfloat16 autocast, or nothing."""
    return partial(autocast_bfloat16, device) if run.dtype == "bfloat16" else nullcontext


@contextmanager
def autocast_bfloat16(device: torch.device) -> Iterator[None]:
    """Autocast. Where oneDNN lacks bfloat16, as on processors without AVX-512, torch's own kernels compute it."""
    lacks_kernels = device.type == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    before: Any = mkldnn.enabled
    if lacks_kernels:
        mkldnn.enabled = False  # type: ignore[assignment]
    try:
        with torch.autocast(device.type, torch.bfloat16):
            yield
    finally:
        mkldnn.enabled = before


class MicroBatchForward:
    """Calls the model on micro-batches of one rank. Lazy datasets are fetched ahead by worker processes."""

    def __init__(self, run: Run, batches: Batches, model: nn.Module, engine: Engine) -> None:
        self.run = run
        self.batches = batches
        self.model = model
        self.wrapped = model  # what is called: the engine may wrap it
        self.device = engine.device
        self.autocast = autocast_for(run, engine.device)
        self.hidden_state: HiddenState | None = None
        dataset = batches.dataset
        self.prefetcher = Prefetcher(dataset.train, dataset.workers) if dataset.train.lazy else None

    def __call__(self, batch: Batch, indices: Tensor, micro_batch: Slice) -> tuple[Tensor, Tensor]:
        """Return per-sample losses and the number of correct predictions.

        Dropout depends on the step and on the micro-batch's place in the batch alone.
        """
        samples = self.batches.samples(batch.global_batch)
        if self.prefetcher:
            inputs, targets = self.prefetcher.get(FetchRequest.of(indices, seed=self.run.seed, epoch=batch.epoch))
        else:
            inputs, targets = samples.fetch(indices, seed=self.run.seed, epoch=batch.epoch)
        inputs, targets = move_inputs(inputs, self.model, self.device), targets.to(self.device)
        rng.seed_torch(self.run.seed, batch.after.step, micro_batch.start, rng.DROPOUT)
        with self.autocast():
            if samples.sequential:
                self.hidden_state = self.hidden_state or HiddenState(batch.global_batch)
                logits, state = self.wrapped(inputs, self.hidden_state.take(micro_batch))
                self.hidden_state.put(micro_batch, state)
            else:
                logits = self._call_model(inputs)
        return per_sample_loss(logits, targets, self.run.loss), count_correct(logits, targets)

    def _call_model(self, inputs: Tensor) -> Tensor:
        try:
            return _first_output(self.wrapped(inputs))
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise Problem(
                "BatchNorm cannot normalise a batch of one sample, and the last batch of an epoch here has only one: "
                "use another global_batch"
            ) from error

    def prefetch(self, coming: Sequence[Batch], rank: int) -> None:
        """Let the dataset's worker processes, if any, decode the samples of these batches."""
        if self.prefetcher:
            self.prefetcher.prefetch(
                FetchRequest.of(micro_batch.of(batch.indices), seed=self.run.seed, epoch=batch.epoch)
                for batch in coming
                for micro_batch in batch.by_rank[rank]
            )

    def call_on_two_samples(self) -> Tensor:
        """Return the logits of two samples: a call without an effect, for ranks that have no samples left."""
        inputs, _ = self.batches.samples(2).fetch(torch.arange(2))
        with self.autocast():
            logits = self.wrapped(move_inputs(inputs, self.model, self.device))
        return _first_output(logits)

    @contextmanager
    def trial(self, count: int, global_batch: int) -> Iterator[float]:
        """Run forward and backward once on `count` samples and yield the seconds it took.

        Within the block the gradients are in `.grad`; afterwards gradients and buffers are as before.
        """
        samples = self.batches.samples(global_batch)
        inputs, targets = samples.fetch(torch.arange(count) % len(samples))
        inputs, targets = move_inputs(inputs, self.model, self.device), targets.to(self.device)
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        _synchronize(self.device)
        started = time.perf_counter()
        with self.autocast():
            logits = self.model(inputs)
        per_sample_loss(_first_output(logits), targets, self.run.loss).sum().backward()
        _synchronize(self.device)
        try:
            yield time.perf_counter() - started
        finally:
            self.model.zero_grad(set_to_none=True)
            for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(before)

    def time_trial(self, count: int, global_batch: int) -> float:
        """Seconds of one forward and backward pass over `count` samples."""
        with self.trial(count, global_batch) as seconds:
            return seconds

    def uses_every_parameter(self) -> bool:
        """Whether a backward pass reaches all trainable parameters."""
        with self.trial(2, 2):
            return all(p.grad is not None for p in self.model.parameters() if p.requires_grad)

    def close(self) -> None:
        """End the dataset's worker processes."""
        if self.prefetcher:
            self.prefetcher.close()


def _first_output(output: Tensor | tuple[Tensor, Any]) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
