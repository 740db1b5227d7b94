"""How much a filter drops: a fraction, or just as much as another filter did, so that both can be compared."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bigbatch import parts, rng
from bigbatch.datasets import Dataset
from bigbatch.filters.pipeline.results import load

TIES = 201  # the part of a key that keeps the order of equal scores apart from other draws


class DropOptions(parts.Config):
    """Options of every filter that drops by rank."""

    drop: float = Field(0.1, ge=0, lt=1)  # the fraction dropped
    like: str | None = None  # a kept.npz whose size is taken instead
    per_class: bool = True  # the fraction, or the other filter's count, of each class; else over all
    seed: int = Field(0, ge=0)


def drop_largest(score: NDArray[np.floating] | Tensor, dataset: Dataset, config: DropOptions) -> Tensor:
    """The mask that drops the largest scores. Equal scores are dropped in a random order, which the seed decides."""
    score = torch.as_tensor(score)
    mask = torch.ones(len(score), dtype=torch.bool)
    for members, count in groups_to_drop(dataset, config):
        shuffled = members[rng.permutation(len(members), config.seed, TIES)]
        mask[shuffled[score[shuffled].argsort(descending=True, stable=True)[:count]]] = False
    return mask


def groups_to_drop(dataset: Dataset, config: DropOptions) -> list[tuple[Tensor, int]]:
    """The samples of each class, or all of them, and how many of them to drop."""
    labels = dataset.train.labels
    everything = torch.arange(len(labels))
    members = (
        [everything[labels == index] for index in range(len(dataset.classes))] if config.per_class else [everything]
    )
    if config.like is None:
        return [(group, round(config.drop * len(group))) for group in members]
    other = load(config.like, dataset).mask
    return [(group, int((~other[group]).sum())) for group in members]
