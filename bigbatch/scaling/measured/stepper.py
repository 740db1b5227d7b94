"""One training step as the training loop takes it: engine, exact gradient of the global batch, optimizer.

Left out is what the loop does around it: the learning rate, the sum of losses over ranks, the row of metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from bigbatch.engines import Engine
from bigbatch.engines.local import Local
from bigbatch.position import Position
from bigbatch.run import Run
from bigbatch.training.assembly import AssembledRun
from bigbatch.training.batches import Split
from bigbatch.training.gradient import BatchSums
from bigbatch.training.step import take_step


def run_of(
    model: Mapping[str, Any],
    engine: Mapping[str, Any],
    *,
    ranks: int,
    rank_batch: int,
    sample_shape: tuple[int, ...],
    classes: int,
) -> Run:
    """The run whose steps are taken: one micro-batch a rank, momentum, synthetic samples."""
    global_batch = ranks * rank_batch
    return Run(
        name="measured",
        dataset={"name": "synthetic", "sample_shape": list(sample_shape), "classes": classes, "samples": global_batch},
        model=dict(model),
        global_batch=global_batch,
        micro_batch=rank_batch,
        optimizer={"name": "momentum", "lr": 1e-6},  # weights hardly move: the last step is as the first
        engine=dict(engine),
        steps=1,
    )


class Silent(Local):
    """One of `ranks` ranks that does all that a rank does but never hears of the others: sums stay its own."""

    def __init__(self, ranks: int, rank: int = 0) -> None:
        super().__init__()
        self.rank, self.world_size = rank, ranks


class Stepper(AssembledRun):
    """A run ready to step on one rank, without the loop's metrics. `between` is called when the gradient is there."""

    def __init__(self, run: Run, engine: Engine) -> None:
        super().__init__(run, engine)
        self.global_batch = self.first_global_batch()
        self.add_optimizer(Split(engine.world_size, self.global_batch // engine.world_size))

    def step(self, between: Callable[[], None] = lambda: None) -> None:
        @contextmanager
        def call_between(_: BatchSums) -> Iterator[None]:
            between()
            yield

        batch = self.batches.next(self.progress, self.global_batch, self.split)
        take_step(self, batch, Position(0.0, 1.0, self.global_batch), call_between)
        if self.engine.device.type == "cuda":
            torch.cuda.synchronize(self.engine.device)

    def meet(self) -> None:
        """Wait for all ranks."""
        self.engine.sum(torch.zeros(1, device=self.engine.device))
