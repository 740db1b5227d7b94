"""A small convolutional network for digits and thumbnails, after LeNet (LeCun et al. 1998)."""

from __future__ import annotations

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.models.blocks.input_checks import image_shape


class Config(parts.Config):
    """Two 3 x 3 convolutions of `width` and 2 `width` channels, one hidden layer of `hidden` units."""

    width: PositiveInt = Field(16, description="channels of the first convolution; the second has twice as many")
    hidden: PositiveInt = Field(64, description="units before the last layer")
    batch_norm: bool = Field(False, description="BatchNorm after each convolution")
    dropout: float = Field(0.0, ge=0, lt=1, description="before the last layer")


class CNN(nn.Module):
    def __init__(self, config: Config, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.conv1 = _build_conv_block(channels, config.width, config.batch_norm)
        self.conv2 = _build_conv_block(config.width, 2 * config.width, config.batch_norm)
        self.hidden = nn.Linear(2 * config.width * (height // 4) * (width // 4), config.hidden)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.hidden, classes)

    def features(self, x: Tensor) -> Tensor:
        x = self.conv2(self.conv1(x)).flatten(1)
        features: Tensor = self.dropout(self.hidden(x).relu())
        return features

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


def _build_conv_block(in_channels: int, channels: int, batch_norm: bool) -> nn.Sequential:
    # BatchNorm subtracts the mean, so a bias before it would never get a gradient
    convolution = nn.Conv2d(in_channels, channels, 3, padding=1, bias=not batch_norm)
    norm = [nn.BatchNorm2d(channels)] if batch_norm else []
    return nn.Sequential(convolution, *norm, nn.ReLU(), nn.MaxPool2d(2))


def build(config: Config, dataset: Dataset) -> nn.Module:
    shape = image_shape(dataset, config.name, smallest=4, instead="'mlp'")
    return CNN(config, shape, len(dataset.classes))
