"""Samples/s of `micro_batch=auto` at a global batch of 8192 over the best fixed micro-batch. The bar is 0.95.

    python benchmarks/micro_batch.py

The LEGW paper's MNIST LSTM on MNIST-shaped images. Every fixed micro-batch from 16 to 8192 is timed on a whole
global batch (small ones on a part of it), in two rounds of turns in one process; the best time of each counts.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import synthetic

from bigbatch import engines, models, parts
from bigbatch.position import Position, Progress
from bigbatch.run import Run
from bigbatch.training import micro_batch
from bigbatch.training.batches import Batches, Split
from bigbatch.training.gradient import GlobalGradient

GLOBAL_BATCH = 8192
TIMED_SAMPLES = 4096
ROUNDS = 2

RUN = Run(
    dataset={"name": "synthetic:mnist"},
    model="lstm",
    global_batch=GLOBAL_BATCH,
    optimizer={"name": "momentum", "lr": 0.1},
    epochs=1,
)


def main() -> None:
    dataset = synthetic.mnist(GLOBAL_BATCH)
    batches = Batches(dataset, seed=0)
    engine = engines.start(parts.configure("engines", "local"))
    gradient = GlobalGradient(RUN, batches, models.build(RUN.model, dataset), engine)

    started = time.perf_counter()
    chosen = micro_batch.choose(GLOBAL_BATCH, lambda count: gradient.forward.time_trial(count, GLOBAL_BATCH))
    print(f"auto chose {chosen} in {time.perf_counter() - started:.1f} s")

    def samples_per_second(size: int) -> float:
        count = max(TIMED_SAMPLES, size)
        batch = batches.next(Progress(), GLOBAL_BATCH, Split(1, size), at_most=count)
        started = time.perf_counter()
        gradient.compute(batch, Position(0.0, 1.0, GLOBAL_BATCH))
        return count / (time.perf_counter() - started)

    best: dict[int, float] = {}
    for _ in range(ROUNDS):
        for size in sorted({chosen, *(2**power for power in range(4, 14))}):
            best[size] = max(best.get(size, 0.0), samples_per_second(size))
    for size, speed in best.items():
        print(f"micro-batch {size:5}  {speed:8,.0f} samples/s{'  <- auto' if size == chosen else ''}")
    fastest = max(best, key=best.__getitem__)
    print(f"auto over the best fixed micro-batch ({fastest}): {best[chosen] / best[fastest]:.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
