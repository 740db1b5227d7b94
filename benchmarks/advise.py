"""Is the advised batch a fast one? Time to a loss at each of several batches, over that at the best of them.

    python benchmarks/advise.py [--recipe digits] [--loss 0.1] [--seeds 3]

Advises the recipe, then trains it from the start at a ladder of batches with lrs that follow √B, until the running
mean of the loss is below --loss, in CPU seconds of one thread. Prints the advised batch's time over the best one's, and
for comparison that of the recipe's own batch and of the largest in the ladder, which is what a finder of "what fits"
would take.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import torch

from bigbatch.advice import advise_run
from bigbatch.advice.learner import RunLearner
from bigbatch.recipes import load_run
from bigbatch.schedules import scale_lr

_MOST_EPOCHS = 60
_MEMORY_SAMPLES = 1024  # of the running mean, the same at every batch


def seconds_to(loss: float, recipe: str, batch: int, seed: int) -> float | None:
    """CPU seconds until the running mean of the loss is below `loss`; None where that never happens."""
    learner = RunLearner(load_run(recipe, [f"seed={seed}"]))
    lr = scale_lr(learner.baseline.lr, batch / learner.baseline.global_batch, "sqrt")
    keep = max(0.0, 1 - batch / _MEMORY_SAMPLES)
    mean, spent = None, 0.0
    while learner.epochs < _MOST_EPOCHS:
        started = time.process_time()
        now = learner.step(batch, lr)
        spent += time.process_time() - started
        mean = now if mean is None else keep * mean + (1 - keep) * now
        if mean < loss and learner.samples >= _MEMORY_SAMPLES:
            return spent
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recipe", default="digits")
    parser.add_argument("--loss", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    advice = advise_run(load_run(options.recipe))
    ladder = sorted({*(2**power for power in range(2, advice.data_cap.bit_length())), advice.batch, advice.now})
    print(f"{options.recipe}: advised {advice.batch} (90 %: {advice.interval}), grade {advice.grade}; now {advice.now}")
    times: dict[int, float] = {}
    for batch in ladder:
        found = [seconds_to(options.loss, options.recipe, batch, seed) for seed in range(options.seeds)]
        if None not in found:
            times[batch] = median(seconds for seconds in found if seconds is not None)
        told = f"{times[batch]:7.2f} CPU s" if batch in times else f"not within {_MOST_EPOCHS} epochs"
        print(f"  batch {batch:5}: loss {options.loss:g} after {told}")
    best = min(times, key=lambda batch: times[batch])
    for name, batch in (("advised", advice.batch), ("now", advice.now), ("largest", ladder[-1])):
        ratio = f"{times[batch] / times[best]:.2f}" if batch in times else "∞"
        print(f"{name} {batch} over the best {best}: {ratio}")


if __name__ == "__main__":
    main()
