"""Small networks that learn a dataset while a filter watches: what each sample does to them is its score."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import BeforeValidator, Field, PositiveInt, SerializeAsAny
from torch import Tensor, nn

from bigbatch import models, parts, rng
from bigbatch.datasets import Dataset
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import ranks
from bigbatch.filters.pipeline.budget import DropOptions
from bigbatch.losses import per_sample_loss
from bigbatch.output.progress import stage

_EVALUATION_BATCH = 512  # samples in evaluation

OnBatch = Callable[[Tensor, Tensor], None]  # told the numbers of samples and their logits, before they are learned from


def _configure_model(value: Any) -> Any:
    return parts.configure("models", value)


class ScoringOptions(DropOptions):
    """Which network, and how it learns: SGD with momentum 0.9 and a cosine from `lr` to zero."""

    model: Annotated[SerializeAsAny[parts.Config], BeforeValidator(_configure_model)] = Field(
        "cnn", validate_default=True
    )
    networks: PositiveInt = 3  # scores are means over this many, from unlike initial weights
    global_batch: PositiveInt = 64
    lr: float = Field(0.05, gt=0)


def train_scoring_network(
    dataset: Dataset,
    options: ScoringOptions,
    epochs: int,
    number: int,
    rows: Tensor | None = None,
    on_batch: OnBatch | None = None,
) -> nn.Module:
    """Network `number` after some epochs over the given samples, else over all: a function of the options alone.

    torch's own random numbers go on afterwards as if nothing had been drawn.
    """
    with torch.random.fork_rng(devices=[]):
        return _train(dataset, options, epochs, number, rows, on_batch)


def _train(
    dataset: Dataset, options: ScoringOptions, epochs: int, number: int, rows: Tensor | None, on_batch: OnBatch | None
) -> nn.Module:
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
    """Softmax [samples, classes] in evaluation mode, without augmentation."""
    model.eval()
    device = ranks.device()
    rows = torch.arange(len(dataset.train)) if rows is None else rows
    pieces = [
        model(dataset.train.fetch(piece)[0].to(device)).softmax(1).cpu() for piece in rows.split(_EVALUATION_BATCH)
    ]
    return torch.cat(pieces)


def average_over_networks(
    options: ScoringOptions, score: Callable[[int], Tensor]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """On several ranks the first one's networks speak for all."""

    def mean() -> np.ndarray[Any, np.dtype[np.float64]]:
        return torch.stack([score(number).double() for number in range(options.networks)]).mean(0).numpy()

    return ranks.compute_on_rank_zero(mean)


def split_folds(count: int, parts_count: int, *key: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Samples to learn from and samples held out, each held out once."""
    shuffled = rng.permutation(count, *key)
    for held_out in shuffled.chunk(parts_count):
        rest = torch.ones(count, dtype=torch.bool)
        rest[held_out] = False
        yield rest.nonzero().squeeze(1), held_out
