"""What probes cost, as a percentage of training time. The bar for the default set is 5 %.

    python benchmarks/probes.py [--batch 128] [--rounds 7] [--all]

Trains without probes and with one probe at every step, step by step in turns in one process on one thread: a probe's
cost is the median over rounds of (its step / the plain step of the round − 1), spread over its default interval.
Measured on ResNet-20 and on a small CNN, with CIFAR-shaped images; a larger batch makes each percentage smaller,
since most probes look at a fixed number of samples. --all also measures what is not in the default set, which takes
many minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from bigbatch import engines, parts
from bigbatch.artifacts.folder import Folder
from bigbatch.probes import DEFAULT
from bigbatch.run import Run
from bigbatch.training.loop import Training, TrainOptions

MODELS: dict[str, dict[str, Any]] = {
    "ResNet-20": {"name": "resnet_cifar", "depth": 20},
    "CNN": {"name": "cnn", "width": 32},
}
PLAIN = "no probes"


def training(model: str, batch: int, probe: str, folder: Path) -> Training:
    run = Run(
        name=f"{model}-{probe.replace(' ', '-')}",
        dataset={"name": "synthetic:cifar"},
        model=MODELS[model],
        global_batch=batch,
        micro_batch=batch // 2,
        optimizer={"name": "momentum", "lr": 0.01},
        epochs=1000,
        probes=[] if probe == PLAIN else [{"name": probe, "every_steps": 1}],
    )
    run_folder = Folder(folder / run.folder_name)
    run_folder.create(run)
    return Training(run, run_folder, engines.start(parts.configure("engines", "local")), TrainOptions())


def seconds(one: Training) -> float:
    started = time.process_time()
    one.step(lambda: False, False)
    return time.process_time() - started


def measured(model: str, batch: int, names: list[str], rounds: int) -> dict[str, float]:
    """By probe: a step with it over a step without."""
    with tempfile.TemporaryDirectory() as folder:
        trainings = {name: training(model, batch, name, Path(folder)) for name in (PLAIN, *names)}
        for one in trainings.values():  # the first step warms up
            one.step(lambda: False, False)
        times = [{name: seconds(one) for name, one in trainings.items()} for _ in range(rounds)]
        for one in trainings.values():
            one.close()
    print(f"\n{model}: {1000 * median(row[PLAIN] for row in times):.0f} CPU ms a step")
    return {name: median(row[name] / row[PLAIN] for row in times) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = parts.names("probes") if options.all else list(DEFAULT)
    print(f"batch {options.batch}, {options.rounds} rounds, 1 thread, torch {torch.__version__}")
    for model in MODELS:
        total = 0.0
        for name, ratio in measured(model, options.batch, names, options.rounds).items():
            every_steps = parts.configure("probes", name).every_steps  # type: ignore[attr-defined]
            percent = max(
                0.0, 100 * (ratio - 1) / every_steps
            )  # below nothing is noise, and must not hide another's cost
            total += percent if name in DEFAULT else 0.0
            print(f"  {name:12} {ratio - 1:7.2f} steps, every {every_steps:4}: {percent:5.2f} % of training time")
        print(f"  default set: {total:.2f} % (bar: 5 %)")


if __name__ == "__main__":
    main()
