"""A multi-layer perceptron: flattened inputs, ReLU layers, one linear output (Rumelhart, Hinton, Williams 1986)."""

from __future__ import annotations

import math
from itertools import pairwise

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.models.blocks.input_checks import require_classes


class Config(parts.Config):
    """The width of each hidden layer, from the input on; none is logistic regression."""

    hidden: tuple[PositiveInt, ...] = Field((64,), description="widths, from the input on")


class MLP(nn.Module):
    def __init__(self, inputs: int, hidden: tuple[int, ...], classes: int) -> None:
        super().__init__()
        widths = (inputs, *hidden)
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.head = nn.Linear(widths[-1], classes)

    def features(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer in self.layers:
            x = layer(x).relu()
        return x

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


def build(config: Config, dataset: Dataset) -> nn.Module:
    require_classes(dataset, config.name)
    return MLP(math.prod(dataset.sample_shape), config.hidden, len(dataset.classes))
