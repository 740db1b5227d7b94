from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from bigbatch import models, parts
from bigbatch.datasets import Dataset
from bigbatch.trust import trust_typed


class NoSamples:
    """Models are built from what a dataset says of itself; nothing is fetched."""

    lazy = False
    sequential = False
    labels = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return 0

    def fetch(self, indices, *, seed=0, epoch=None):
        raise AssertionError("building a model fetches no samples")


def dataset_of(shape: tuple[int, ...], classes: int = 10, task: str = "classify") -> Dataset:
    words = tuple(str(index) for index in range(classes))
    return Dataset(NoSamples(), NoSamples(), words, shape, hash="none", task=task)


@pytest.fixture
def make() -> Callable[..., nn.Module]:
    """make("resnet", (3, 32, 32), depth=18): a model from its name, the shape of a sample, and its options."""

    def build(name: str, shape: tuple[int, ...], classes: int = 10, task: str = "classify", **options) -> nn.Module:
        torch.manual_seed(0)
        trust_typed(name)
        return models.build(parts.configure("models", {"name": name, **options}), dataset_of(shape, classes, task))

    return build


@pytest.fixture
def sketch(make) -> Callable[..., nn.Module]:
    """The same without memory for weights, for counting and naming them."""

    def build(*arguments, **options) -> nn.Module:
        with torch.device("meta"):
            return make(*arguments, **options)

    return build


@pytest.fixture
def parameters() -> Callable[[nn.Module], int]:
    return lambda model: sum(parameter.numel() for parameter in model.parameters())
