"""ResNet-9 of the fast CIFAR-10 trainings (Page 2018, DAWNBench; Jordan 2024, airbench): few layers, pooled early.

Eight convolutions with BatchNorm, two of the four stages with a residual pair, a max-pool over what is left, and one
linear layer whose logits are scaled by 1/8. `width` 64 is Page's network, of 6.6 million parameters.
"""

from __future__ import annotations

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.models.blocks.input_checks import image_shape

_LOGIT_SCALE = 0.125


class Config(parts.Config):
    """Stages have 1, 2, 4 and 8 times `width` channels."""

    width: PositiveInt = Field(64, description="channels of the first stage")
    dropout: float = Field(0.0, ge=0, lt=1, description="before the last layer")


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(_build_conv(channels, channels), _build_conv(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = x + self.layers(x)
        return output


class ResNet9(nn.Module):
    def __init__(self, config: Config, in_channels: int, classes: int) -> None:
        super().__init__()
        width = config.width
        self.first = _build_conv(in_channels, width)
        self.stage1 = nn.Sequential(_build_conv(width, 2 * width, pool=True), Residual(2 * width))
        self.stage2 = _build_conv(2 * width, 4 * width, pool=True)
        self.stage3 = nn.Sequential(_build_conv(4 * width, 8 * width, pool=True), Residual(8 * width))
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(8 * width, classes, bias=False)

    def features(self, x: Tensor) -> Tensor:
        x = self.stage3(self.stage2(self.stage1(self.first(x))))
        features: Tensor = self.dropout(x.amax(dim=(2, 3))) * _LOGIT_SCALE
        return features

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


def _build_conv(in_channels: int, channels: int, pool: bool = False) -> nn.Sequential:
    convolution = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
    # pooled before the norm, as in airbench: a quarter of the elements to normalise
    pooling = [nn.MaxPool2d(2)] if pool else []
    return nn.Sequential(convolution, *pooling, nn.BatchNorm2d(channels), nn.ReLU())


def build(config: Config, dataset: Dataset) -> nn.Module:
    channels, _, _ = image_shape(dataset, config.name, smallest=8, instead="'cnn'")
    return ResNet9(config, channels, len(dataset.classes))
