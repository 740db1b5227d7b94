"""Datasets: what a model learns from, in memory or decoded on demand.

A part offers `load(config, data_dir) -> Dataset`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor

from bigbatch import parts
from bigbatch.datasets.reading.hashing import sha256

__all__ = ["Dataset", "Samples", "load", "sha256"]


class Samples(Protocol):
    """A set of samples with stable numbers 0..len-1."""

    lazy: bool  # fetching is slow (files, decoding): worth worker processes
    sequential: bool  # samples follow each other in time: never shuffled, the hidden state is kept between batches

    def __len__(self) -> int: ...

    @property
    def labels(self) -> Tensor:
        """int64, one per sample (classification only)."""

    def fetch(self, indices: Tensor, *, seed: int = 0, epoch: int | None = None) -> tuple[Tensor, Tensor]:
        """Return inputs and targets, augmented as a pure function of (seed, epoch, sample) if an epoch is given."""


@dataclass(frozen=True)
class Dataset:
    """A training set, a test set, and what a model needs to know of them to be built."""

    train: Samples
    test: Samples
    classes: tuple[str, ...]  # the words of the vocabulary for text
    sample_shape: tuple[int, ...]  # what the model sees: (channels, height, width), or (steps,) for text
    hash: str  # SHA-256 of the training data: two datasets with one hash have the same samples in the same order
    task: Literal["classify", "language"] = "classify"
    workers: int | None = None  # processes that fetch lazy samples; None: one per core


def load(config: parts.Config, data_dir: Path | None = None) -> Dataset:
    """Load the dataset that a config names. A class from outside gets only its own options."""
    part = parts.find("datasets", config.name)
    loader: Callable[..., Dataset] = part.load
    return loader(config) if isinstance(part, parts.ExternalPart) else loader(config, data_dir)
