"""A dataset whose test set is a part of its training set: to choose by, so that the real test set stays unseen.

Run(dataset={"name": "bigbatch.filters._held_out:held_out", "of": {"name": "digits"}, "fraction": 0.2}, ...)
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bigbatch import datasets, parts, rng
from bigbatch.datasets import Dataset, Samples
from bigbatch.errors import Problem

NAME = "bigbatch.filters._held_out:held_out"
_SPLIT = 206


class Subset:
    """Some samples of a set, numbered anew."""

    def __init__(self, samples: Samples, chosen: Tensor) -> None:
        self.samples, self.chosen = samples, chosen
        self.lazy, self.sequential = samples.lazy, samples.sequential
        self.labels = samples.labels[chosen]

    def __len__(self) -> int:
        return len(self.chosen)

    def fetch(self, indices: Tensor, *, seed: int = 0, epoch: int | None = None) -> tuple[Tensor, Tensor]:
        return self.samples.fetch(self.chosen[indices], seed=seed, epoch=epoch)


def held_out(of: str | dict[str, Any], fraction: float = 0.2, seed: int = 0, data_dir: str | None = None) -> Dataset:
    """The training samples of a dataset, a fraction of each class of which is held out as its test set."""
    whole = datasets.load(parts.configure("datasets", of), Path(data_dir) if data_dir else None)
    if whole.task != "classify":
        raise Problem(f"dataset '{of}' has no classes to hold samples of out: use one of images")
    if not 0 < fraction < 1:
        raise Problem(f"a fraction of {fraction:g} cannot be held out: use one between 0 and 1")
    labels = whole.train.labels
    order = rng.permutation(len(labels), seed, _SPLIT)
    is_held_out = torch.zeros(len(labels), dtype=torch.bool)
    for index in range(len(whole.classes)):
        members = order[labels[order] == index]
        is_held_out[members[: round(fraction * len(members))]] = True
    train, test = (Subset(whole.train, mask.nonzero().squeeze(1)) for mask in (~is_held_out, is_held_out))
    digest = hashlib.sha256(f"{whole.hash} held out {fraction} {seed}".encode()).hexdigest()
    return replace(whole, train=train, test=test, hash=digest)
