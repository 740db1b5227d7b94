"""Datasets and networks as a user would write them, reached by tests and by their ranks as `filter_parts:name`."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bigbatch import parts, rng
from bigbatch.datasets import Dataset, load, sha256
from bigbatch.datasets.reading.images import Augment, InMemoryImages


def digits(count: int | None = None) -> Dataset:
    """The embedded digits, or the first of them."""
    whole = load(parts.configure("datasets", "digits"))
    if count is None:
        return whole
    images, labels = whole.train.images[:count], whole.train.labels[:count]
    train = InMemoryImages(images, labels, whole.train.augment, white=16)
    return replace(whole, train=train, hash=sha256(images, labels))


def flipped(fraction: float = 0.05, seed: int = 0) -> Dataset:
    """Digits of which some carry the label of another class."""
    dataset = digits()
    samples = dataset.train
    labels = samples.labels.clone()
    chosen = flipped_samples(fraction, seed)
    labels[chosen] = (labels[chosen] + 1 + torch.from_numpy(rng.integers(9, seed, 8, chosen.numpy()))) % 10
    train = InMemoryImages(samples.images, labels, samples.augment, white=16)
    return replace(dataset, train=train, hash=sha256(samples.images, labels))


def flipped_samples(fraction: float = 0.05, seed: int = 0) -> Tensor:
    count = len(digits().train)
    return rng.permutation(count, seed, 7)[: round(fraction * count)].sort().values


class Dying(InMemoryImages):
    """Kills its process with SIGKILL at a fetch, once: `marker` remembers that it did."""

    def __init__(self, samples: InMemoryImages, marker: str, at_fetch: int, rank: int) -> None:
        super().__init__(samples.images, samples.labels, samples.augment, white=16)
        self.marker, self.at_fetch, self.fetched = Path(marker), at_fetch, 0
        self.here = int(os.environ.get("RANK", "0")) == rank

    def fetch(self, indices: Tensor, *, seed: int = 0, epoch: int | None = None) -> tuple[Tensor, Tensor]:
        self.fetched += 1
        if self.here and self.fetched == self.at_fetch and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fetch(indices, seed=seed, epoch=epoch)


def dying(marker: str, at_fetch: int, rank: int = 0) -> Dataset:
    dataset = digits()
    return replace(dataset, train=Dying(dataset.train, marker, at_fetch, rank))


class Net(nn.Module):
    """Random but the same each time; dropout and BatchNorm show whether it is really in evaluation mode."""

    def __init__(self, classes: int = 10, inputs: int = 64) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            layers = (nn.Linear(inputs, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.5))
            self.hidden = nn.Sequential(nn.Flatten(), *layers)
            self.head = nn.Linear(24, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(x))


def two_blobs(counts: tuple[int, ...] = (60, 40), outliers: int = 3) -> tuple[Dataset, np.ndarray[Any, Any]]:
    """A dataset whose features are known: one dense blob a class, and outliers that are its first samples."""
    random = np.random.default_rng(3)
    labels = np.repeat(np.arange(len(counts)), counts)
    features = random.normal(size=(len(labels), 2)) + 100 * labels[:, None]
    for index in range(len(counts)):
        first = np.flatnonzero(labels == index)[:outliers]
        features[first] += 15 * (1 + np.arange(len(first)))[:, None] * np.array([1.0, -1.0])
    images = torch.zeros(len(labels), 1, 4, 4, dtype=torch.uint8)
    samples = InMemoryImages(images, torch.from_numpy(labels), Augment(mean=(0.0,), std=(1.0,)))
    names = tuple(f"class {index}" for index in range(len(counts)))
    hashed = sha256(samples.labels, torch.from_numpy(features))
    return Dataset(samples, samples, names, (1, 4, 4), hashed), features
