"""How many samples a filter drops: a fraction, or as many as another filter, to compare the two."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bigbatch import parts, rng
from bigbatch.datasets import Dataset
from bigbatch.filters.pipeline.results import load

TIES = 201  # the random stream that orders equal scores


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
