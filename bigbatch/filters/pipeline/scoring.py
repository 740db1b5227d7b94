"""Filters that drop the largest scores: how many samples they drop, and small networks that score samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from bigbatch.filters.pipeline.results import Kept, load
from bigbatch.losses import per_sample_loss
from bigbatch.output.progress import stage

TIES = 201  # the random stream that orders equal scores
_FOLDS = 205
_EVALUATION_BATCH = 512

OnBatch = Callable[[Tensor, Tensor], None]  # called with the indices and the logits of a batch before its step


class DropOptions(parts.Config):
    """Options of every filter that drops by rank."""

    drop: float = Field(0.1, ge=0, lt=1)  # the fraction dropped
    like: str | None = None  # a kept.npz whose size is taken instead
    per_class: bool = True  # the fraction, or the other filter's count, of each class; else over all
    seed: int = Field(0, ge=0)


def drop_largest(score: NDArray[np.floating] | Tensor, dataset: Dataset, config: DropOptions) -> Tensor:
    """Return the mask that drops the largest scores. Equal scores are dropped in a random order given by the seed."""
    score = torch.as_tensor(score)
    mask = torch.ones(len(score), dtype=torch.bool)
    for members, count in groups_to_drop(dataset, config):
        shuffled = members[rng.permutation(len(members), config.seed, TIES)]
        mask[shuffled[score[shuffled].argsort(descending=True, stable=True)[:count]]] = False
    return mask


def groups_to_drop(dataset: Dataset, config: DropOptions) -> list[tuple[Tensor, int]]:
    """Return the samples of each class, or all samples as one group, and how many of each to drop."""
    labels = dataset.train.labels
    everything = torch.arange(len(labels))
    by_class = (everything[labels == index] for index in range(len(dataset.classes)))
    groups = list(by_class) if config.per_class else [everything]
    if config.like is None:
        return [(group, round(config.drop * len(group))) for group in groups]
    other = load(config.like, dataset).mask
    return [(group, int((~other[group]).sum())) for group in groups]


@dataclass(frozen=True)
class Learner:
    """How small networks are trained here: SGD with momentum 0.9 and a cosine schedule from `lr` to zero."""

    model: parts.Config
    epochs: int
    global_batch: int
    lr: float
    seed: int
    filter_name: str  # for progress and errors

    @torch.random.fork_rng(devices=[])
    def train(
        self, dataset: Dataset, number: int = 0, rows: Tensor | None = None, on_batch: OnBatch | None = None
    ) -> nn.Module:
        """Train network `number` on the given samples, by default on all: a function of these options alone.

        The state of torch's own random numbers is not changed.
        """
        if dataset.task != "classify":
            raise Problem(f"filter '{self.filter_name}' needs classes, but text has none: use it on images")
        rows = torch.arange(len(dataset.train)) if rows is None else rows
        rng.seed_torch(self.seed, number, rng.INITIAL_WEIGHTS)
        device = ranks.device()
        model = models.build(self.model, dataset).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=self.lr, momentum=0.9)
        steps = self.epochs * math.ceil(len(rows) / self.global_batch)
        step = 0
        with stage(f"{self.filter_name}, network {number + 1}", steps) as advance:
            for epoch in range(self.epochs):
                order = rows[rng.permutation(len(rows), self.seed, number, epoch, rng.ORDER)]
                for batch in order.split(self.global_batch):
                    inputs, targets = dataset.train.fetch(batch, seed=self.seed, epoch=epoch)
                    rng.seed_torch(self.seed, number, step, rng.DROPOUT)
                    logits = model(inputs.to(device))
                    if on_batch is not None:
                        on_batch(batch, logits.detach().cpu())
                    loss = per_sample_loss(logits, targets.to(device)).mean()
                    optimizer.param_groups[0]["lr"] = self.lr * (1 + math.cos(math.pi * step / steps)) / 2
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    optimizer.step()
                    step += 1
                    advance(step)
        if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
            raise Problem(f"the network of filter '{self.filter_name}' diverged at lr {self.lr:g}: use a smaller lr")
        return model.eval()

    def train_on_folds(self, dataset: Dataset, folds: int) -> Iterator[tuple[Tensor, nn.Module]]:
        """Yield the samples of each fold with a network that learned from the other folds; one fold learns from all."""
        samples = len(dataset.train)
        for number, held_out in enumerate(rng.permutation(samples, self.seed, _FOLDS).chunk(folds)):
            is_learned = torch.ones(samples, dtype=torch.bool)
            is_learned[held_out] = folds == 1
            yield held_out, self.train(dataset, number, is_learned.nonzero().squeeze(1))


class ScoringOptions(DropOptions):
    """Which network, and how it is trained."""

    model: Annotated[SerializeAsAny[parts.Config], BeforeValidator(partial(parts.configure, "models"))] = Field(
        "cnn", validate_default=True
    )
    networks: PositiveInt = 3  # scores are means over this many, each with its own initial weights
    epochs: int = Field(5, ge=1)
    global_batch: PositiveInt = 64
    lr: float = Field(0.05, gt=0)

    def learner(self) -> Learner:
        return Learner(self.model, self.epochs, self.global_batch, self.lr, self.seed, self.name)


@torch.no_grad()
def predict_probabilities(model: nn.Module, dataset: Dataset, rows: Tensor | None = None) -> Tensor:
    """Return softmax outputs [samples, classes] in evaluation mode, without augmentation."""
    rows = torch.arange(len(dataset.train)) if rows is None else rows
    pieces = (dataset.train.fetch(piece)[0].to(ranks.device()) for piece in rows.split(_EVALUATION_BATCH))
    return torch.cat([model(piece).softmax(1).cpu() for piece in pieces])


def drop_by_difficulty(
    dataset: Dataset, options: ScoringOptions, measure: str, score: Callable[[int], Tensor], drop_hard: bool = False
) -> Kept:
    """Drop the easiest samples, or the hardest, by the mean of `score(network number)`, computed on rank 0."""
    difficulty = ranks.compute_on_rank_zero(
        lambda: torch.stack([score(number).double() for number in range(options.networks)]).mean(0).numpy()
    )
    scores = torch.from_numpy(difficulty if drop_hard else -difficulty)
    return Kept(scores, drop_largest(scores, dataset, options), {"measure": measure}, {"difficulty": difficulty})
