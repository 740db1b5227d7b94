"""A fraction of each class of another dataset's training set, held out as the test set: for choosing settings.

Run(dataset={"name": "held_out", "of": "digits", "fraction": 0.2}, ...)
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator
from torch import Tensor

from bigbatch import parts, rng
from bigbatch.datasets import Dataset, Samples
from bigbatch.datasets import load as load_dataset
from bigbatch.errors import Problem

_SPLIT = 206


class Config(parts.Config):
    of: Annotated[SerializeAsAny[parts.Config], BeforeValidator(partial(parts.configure, "datasets"))]
    fraction: float = Field(0.2, gt=0, lt=1)
    seed: int = Field(0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _ignore_data_dir(cls, options: Any) -> Any:
        """Files of earlier versions may hold the folder of the data."""
        return {name: options[name] for name in options if name != "data_dir"} if isinstance(options, dict) else options


class Subset:
    """Some samples of a set, renumbered from 0."""

    def __init__(self, samples: Samples, chosen: Tensor) -> None:
        self.samples, self.chosen = samples, chosen
        self.lazy, self.sequential = samples.lazy, samples.sequential
        self.labels = samples.labels[chosen]

    def __len__(self) -> int:
        return len(self.chosen)

    def fetch(self, indices: Tensor, *, seed: int = 0, epoch: int | None = None) -> tuple[Tensor, Tensor]:
        return self.samples.fetch(self.chosen[indices], seed=seed, epoch=epoch)


def load(config: Config, data_dir: Path | None = None) -> Dataset:
    dataset = load_dataset(config.of, data_dir)
    if dataset.task != "classify":
        raise Problem(f"dataset '{config.of.name}' has no classes to hold samples out of: use a dataset of images")
    labels = dataset.train.labels
    order = rng.permutation(len(labels), config.seed, _SPLIT)
    is_held_out = torch.zeros(len(labels), dtype=torch.bool)
    for index in range(len(dataset.classes)):
        members = order[labels[order] == index]
        is_held_out[members[: round(config.fraction * len(members))]] = True
    train, test = (Subset(dataset.train, mask.nonzero().squeeze(1)) for mask in (~is_held_out, is_held_out))
    digest = hashlib.sha256(f"{dataset.hash} held out {config.fraction} {config.seed}".encode()).hexdigest()
    return replace(dataset, train=train, test=test, hash=digest)
