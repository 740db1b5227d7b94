"""Small networks that are trained on a dataset to score its samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PositiveInt, SerializeAsAny
from torch import Tensor, nn

from bigbatch import models, parts, rng
from bigbatch.datasets import Dataset
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import ranks
from bigbatch.filters.pipeline.budget import DropOptions, drop_largest
from bigbatch.filters.pipeline.results import Kept
from bigbatch.losses import per_sample_loss
from bigbatch.output.progress import stage

_EVALUATION_BATCH = 512

OnBatch = Callable[[Tensor, Tensor], None]  # called with the indices and the logits of a batch before its step


class ScoringOptions(DropOptions):
    """Which network, and how it is trained: SGD with momentum 0.9 and a cosine schedule from `lr` to zero."""

    model: Annotated[SerializeAsAny[parts.Config], BeforeValidator(partial(parts.configure, "models"))] = Field(
        "cnn", validate_default=True
    )
    networks: PositiveInt = 3  # scores are means over this many, each with its own initial weights
    global_batch: PositiveInt = 64
    lr: float = Field(0.05, gt=0)


@torch.random.fork_rng(devices=[])
def train_scoring_network(
    dataset: Dataset,
    options: ScoringOptions,
    epochs: int,
    number: int,
    rows: Tensor | None = None,
    on_batch: OnBatch | None = None,
) -> nn.Module:
    """Train network `number` on the given samples, by default on all: a function of the options alone.

    The state of torch's own random numbers is not changed.
    """
    if dataset.task != "classify":
        raise Problem(f"filter '{options.name}' needs classes, but text has none: use it on images")
    rows = torch.arange(len(dataset.train)) if rows is None else rows
    rng.seed_torch(options.seed, number, rng.INITIAL_WEIGHTS)
    device = ranks.device()
    model = models.build(options.model, dataset).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    steps = epochs * math.ceil(len(rows) / options.global_batch)
    step = 0
    with stage(f"{options.name} {number + 1}/{options.networks}", steps) as advance:
        for epoch in range(epochs):
            order = rows[rng.permutation(len(rows), options.seed, number, epoch, rng.ORDER)]
            for batch in order.split(options.global_batch):
                inputs, targets = dataset.train.fetch(batch, seed=options.seed, epoch=epoch)
                rng.seed_torch(options.seed, number, step, rng.DROPOUT)
                logits = model(inputs.to(device))
                if on_batch is not None:
                    on_batch(batch, logits.detach().cpu())
                loss = per_sample_loss(logits, targets.to(device)).mean()
                optimizer.param_groups[0]["lr"] = options.lr * (1 + math.cos(math.pi * step / steps)) / 2
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                step += 1
                advance(step)
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        raise Problem(f"the network of filter '{options.name}' diverged at lr {options.lr:g}: use a smaller lr")
    return model


@torch.no_grad()
def predict_probabilities(model: nn.Module, dataset: Dataset, rows: Tensor | None = None) -> Tensor:
    """Return softmax outputs [samples, classes] in evaluation mode, without augmentation."""
    model.eval()
    device = ranks.device()
    rows = torch.arange(len(dataset.train)) if rows is None else rows
    pieces = [
        model(dataset.train.fetch(piece)[0].to(device)).softmax(1).cpu() for piece in rows.split(_EVALUATION_BATCH)
    ]
    return torch.cat(pieces)


def drop_by_difficulty(
    dataset: Dataset, options: ScoringOptions, measure: str, score: Callable[[int], Tensor], drop_hard: bool = False
) -> Kept:
    """Drop the easiest samples, or the hardest, by the mean of `score(network number)`, computed on rank 0."""

    def mean() -> NDArray[np.float64]:
        return torch.stack([score(number).double() for number in range(options.networks)]).mean(0).numpy()

    difficulty = ranks.compute_on_rank_zero(mean)
    scores = torch.from_numpy(difficulty if drop_hard else -difficulty)
    return Kept(scores, drop_largest(scores, dataset, options), {"measure": measure}, {"difficulty": difficulty})


def split_folds(count: int, folds: int, *key: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield samples to train on and samples held out; each is held out once."""
    shuffled = rng.permutation(count, *key)
    for held_out in shuffled.chunk(folds):
        rest = torch.ones(count, dtype=torch.bool)
        rest[held_out] = False
        yield rest.nonzero().squeeze(1), held_out
