"""An LSTM that reads an image row by row and classifies it after the last: the MNIST network of LEGW (You et al. 2019).

28 steps of 28 pixels, a linear layer to 128, an LSTM of 128 units (a kernel of 256 x 512), 10 outputs.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.models.blocks.initialization import init_glorot, init_lstm_glorot
from bigbatch.models.blocks.input_checks import image_shape


class Config(parts.Config):
    """init "tensorflow" is Glorot with forget gates at 1, as in the paper; "torch" starts slowly at large batches."""

    hidden: PositiveInt = Field(128, description="units of the LSTM and of the layer before it")
    init: Literal["tensorflow", "torch"] = Field("tensorflow", description="whose initial weights")


class RowLSTM(nn.Module):
    def __init__(self, config: Config, row_width: int, classes: int) -> None:
        super().__init__()
        self.inner = nn.Linear(row_width, config.hidden)
        self.lstm = nn.LSTM(config.hidden, config.hidden, batch_first=True)
        self.head = nn.Linear(config.hidden, classes)
        if config.init == "tensorflow":
            init_glorot(self.inner)
            init_lstm_glorot(self.lstm)
            init_glorot(self.head)

    def features(self, x: Tensor) -> Tensor:
        rows = x.transpose(1, 2).flatten(2)  # [samples, height, channels * width]
        _, (last_hidden, _) = self.lstm(self.inner(rows))
        features: Tensor = last_hidden[-1]
        return features

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


def build(config: Config, dataset: Dataset) -> nn.Module:
    channels, _, width = image_shape(dataset, config.name)
    return RowLSTM(config, channels * width, len(dataset.classes))
