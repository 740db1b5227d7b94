"""The cost of `reduction=exact`: the time of a training step over that of the same step with float sums.

    python benchmarks/exact_sum.py [--steps 30] [--micro-batches 4]

One process, one thread; the two kinds of steps in turn, so that a disturbance affects both. Ranks send four times as
many bytes besides: 16 per weight in the place of 4.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import torch

from bigbatch import engines
from bigbatch.run import Run
from bigbatch.scaling.stepper import Stepper

MODELS = {
    "mlp": ({"name": "mlp", "hidden": [512, 512]}, [3, 32, 32]),
    "cnn": ({"name": "cnn", "width": 32, "hidden": 256}, [3, 32, 32]),
    "resnet_cifar": ({"name": "resnet_cifar"}, [3, 32, 32]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--micro-batches", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, (model, shape) in MODELS.items():
        steppers = {kind: _stepper(model, shape, options.micro_batches, kind) for kind in ("float", "exact")}
        times: dict[str, list[float]] = {kind: [] for kind in steppers}
        for _ in range(options.steps):
            for kind, stepper in steppers.items():
                started = time.perf_counter()
                stepper.step()
                times[kind].append(time.perf_counter() - started)
        plain, exact = (median(times[kind][3:]) for kind in ("float", "exact"))
        print(f"{name:13} float {1e3 * plain:7.2f} ms  exact {1e3 * exact:7.2f} ms  ratio {exact / plain:.2f}")


def _stepper(model: dict[str, object], shape: list[int], micro_batches: int, reduction: str) -> Stepper:
    run = Run(
        dataset={"name": "synthetic", "sample_shape": shape, "classes": 10, "samples": 32 * micro_batches},
        model=model,
        global_batch=32 * micro_batches,
        micro_batch=32,
        optimizer={"name": "momentum", "lr": 1e-6},
        steps=1,
        reduction=reduction,
    )
    stepper = Stepper(run, engines.start(run.engine))
    stepper.split = type(stepper.split)(1, 32, whole_groups=True)
    return stepper


if __name__ == "__main__":
    main()
