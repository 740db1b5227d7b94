"""Gradients of one global batch, computed in one process or on ranks, and the definition to compare them with.

torchrun ... gradients.py FOLDER    every case of ON_TWO_RANKS, into FOLDER/rank-N.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from small import small_run

from bigbatch import datasets, engines, models, parts, rng
from bigbatch.launch.processes import exit_process
from bigbatch.losses import per_sample_loss
from bigbatch.position import Position, Progress
from bigbatch.run import Run
from bigbatch.training.batches import Batch, Batches, Split
from bigbatch.training.gradient import GlobalGradient

HERE = Position(epochs=0.0, total_epochs=1.0, global_batch=512)


def batch_of(run: Run, dataset: datasets.Dataset, split: Split, count: int) -> Batch:
    return Batches(dataset, run.seed).next(Progress(), 512, split, at_most=count)


def start(run: Run, engine: engines.Engine) -> tuple[datasets.Dataset, GlobalGradient]:
    dataset = datasets.load(run.dataset)
    rng.seed_torch(0)
    model = models.build(run.model, dataset).to(torch.float64 if run.dtype == "float64" else torch.float32)
    global_gradient = GlobalGradient(run, Batches(dataset, run.seed), model, engine)
    global_gradient.wrap()
    return dataset, global_gradient


def gradient(run: Run, engine: engines.Engine, split: Split, count: int) -> dict[str, list[float]]:
    dataset, global_gradient = start(run, engine)
    global_gradient.compute(batch_of(run, dataset, split, count), HERE)
    numbers = {
        name: p.grad.flatten().tolist() for name, p in global_gradient.model.named_parameters() if p.grad is not None
    }
    buffers = {name: b.double().flatten().tolist() for name, b in global_gradient.model.named_buffers()}
    return numbers | buffers


def autograd_oracle(run: Run, count: int) -> dict[str, list[float]]:
    """The whole batch at once, straight from the definition."""
    dataset, global_gradient = start(run, engines.start(run.engine))
    indices = batch_of(run, dataset, Split(1, 10_000), count).indices
    inputs, targets = dataset.train.fetch(indices, seed=run.seed, epoch=0)
    per_sample_loss(global_gradient.model(inputs.double()), targets).mean().backward()
    return {name: p.grad.flatten().tolist() for name, p in global_gradient.model.named_parameters()}


def assert_close(a: dict[str, list[float]], b: dict[str, list[float]], tolerance: float = 1e-10) -> None:
    assert a.keys() >= b.keys()
    for name in b:
        difference = torch.tensor(a[name], dtype=torch.float64) - torch.tensor(b[name], dtype=torch.float64)
        assert difference.abs().max() <= tolerance, name


EXACT = small_run(dtype="float64", global_batch=512, model={"name": "cnn", "width": 4, "hidden": 16})
NORMALISED = EXACT.with_settings(["model.batch_norm=true"])
SELECTING = {"name": "small_loss", "discard": 0.3}


def selecting(**options: Any) -> Run:
    return Run(**(EXACT.model_dump() | {"selector": SELECTING | options}))


def selecting_normalised(**options: Any) -> Run:
    return Run(**(NORMALISED.model_dump() | {"selector": SELECTING | options}))


UNUSED = EXACT.with_settings(["model=outside:WithUnused"])

# name -> run, micro-batch, whole BatchNorm groups, samples: all in one start of two ranks, which takes seconds
ON_TWO_RANKS = {
    "even": (EXACT, 256, False, 512),
    "uneven": (EXACT, 256, False, 509),
    "one rank without samples": (EXACT, 256, False, 1),
    "accumulated": (EXACT, 64, False, 500),
    "BatchNorm, even": (NORMALISED, 64, True, 512),
    "BatchNorm, uneven": (NORMALISED, 64, True, 300),
    "selected in one pass": (selecting(passes="one"), 64, False, 500),
    "selected in two passes": (selecting(passes="two"), 64, False, 500),
    "selected, one rank without samples": (selecting(passes="two"), 64, False, 1),
    "BatchNorm, one group on one rank": (NORMALISED, 64, True, 37),
    "BatchNorm, selected in one pass": (selecting_normalised(passes="one"), 64, True, 500),
    "BatchNorm, selected in two passes": (selecting_normalised(passes="two"), 64, True, 500),
    "selected by each rank": (selecting(passes="one", scope="rank"), 64, False, 500),
    "a parameter without use": (UNUSED, 64, False, 500),
}


def main(folder: Path) -> None:
    """What each of the two ranks runs."""
    engine = engines.start(parts.configure("engines", "ddp"))
    found = {
        name: gradient(run, engine, Split(2, micro, whole_groups), count)
        for name, (run, micro, whole_groups, count) in ON_TWO_RANKS.items()
    }
    (folder / f"rank-{engine.rank}.json").write_text(json.dumps(found))
    engine.stop()
    exit_process(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
