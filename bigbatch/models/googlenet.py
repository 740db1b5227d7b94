"""GoogLeNet (Szegedy et al. 2015) without auxiliary heads: the paper's with LRN, or torchvision's with BatchNorm.

Without `batch_norm` it is the network the LARS paper trains, as Caffe has it: LRN, Xavier weights, biases of 0.2.
With it, names and initialisation are torchvision's, and so is the 3 x 3 kernel in place of 5 x 5
(pytorch/vision issue 906), so that its published weights load; those expect inputs with mean 0.5 and deviation 0.5.
"""

from __future__ import annotations

import math

from pydantic import Field
from torch import Tensor, cat, nn

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.models.blocks.input_checks import image_shape


class Config(parts.Config):
    """five_by_five: the paper's 5 x 5 kernels; None uses 5 x 5 without BatchNorm and 3 x 3 with it."""

    batch_norm: bool = Field(False, description="torchvision's network with BatchNorm; else the paper's with LRN")
    five_by_five: bool | None = Field(None, description="5 x 5 kernels; null: without BatchNorm only")
    dropout: float = Field(0.4, ge=0, lt=1, description="before the last layer")

    @property
    def large_kernel(self) -> int:
        five_by_five = not self.batch_norm if self.five_by_five is None else self.five_by_five
        return 5 if five_by_five else 3


# Table 1 of the paper: 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection
INCEPTIONS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


class ConvNormReLU(nn.Module):
    """A convolution that keeps the image's size at stride 1, BatchNorm or a bias, and a ReLU."""

    def __init__(self, in_channels: int, channels: int, kernel: int, *, stride: int = 1, batch_norm: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, channels, kernel, stride, padding=kernel // 2, bias=not batch_norm)
        self.bn = nn.BatchNorm2d(channels, eps=0.001) if batch_norm else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return (x if self.bn is None else self.bn(x)).relu()


class Inception(nn.Module):
    """Four parallel branches (Fig. 2b)."""

    def __init__(self, in_channels: int, widths: tuple[int, ...], large_kernel: int, batch_norm: bool) -> None:
        super().__init__()
        one, three_reduced, three, five_reduced, five, pooled = widths

        def convolution(inputs: int, channels: int, kernel: int) -> ConvNormReLU:
            return ConvNormReLU(inputs, channels, kernel, batch_norm=batch_norm)

        self.branch1 = convolution(in_channels, one, 1)
        self.branch2 = nn.Sequential(convolution(in_channels, three_reduced, 1), convolution(three_reduced, three, 3))
        self.branch3 = nn.Sequential(
            convolution(in_channels, five_reduced, 1), convolution(five_reduced, five, large_kernel)
        )
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), convolution(in_channels, pooled, 1))
        self.channels = one + three + five + pooled

    def forward(self, x: Tensor) -> Tensor:
        return cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], dim=1)


class GoogLeNet(nn.Module):
    unused_weights = ("aux1.", "aux2.")  # torchvision publishes untrained auxiliary heads

    def __init__(self, config: Config, in_channels: int, classes: int) -> None:
        super().__init__()
        self.last_pool = 2 if config.batch_norm else 3  # torchvision's differs from the paper's here too
        self.conv1 = ConvNormReLU(in_channels, 64, 7, stride=2, batch_norm=config.batch_norm)
        self.conv2 = ConvNormReLU(64, 64, 1, batch_norm=config.batch_norm)
        self.conv3 = ConvNormReLU(64, 192, 3, batch_norm=config.batch_norm)
        self.norm = nn.Identity() if config.batch_norm else nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=1)
        channels = 192
        for name, widths in INCEPTIONS.items():
            inception = Inception(channels, widths, config.large_kernel, config.batch_norm)
            self.add_module(f"inception{name}", inception)
            channels = inception.channels
        self.dropout = nn.Dropout(config.dropout)
        self.fc = nn.Linear(channels, classes)
        if config.batch_norm:
            _init_weights_as_torchvision(self)
        else:
            _init_weights_as_caffe(self)

    def features(self, x: Tensor) -> Tensor:
        x = self.norm(_max_pool(self.conv1(x)))
        x = _max_pool(self.norm(self.conv3(self.conv2(x))))
        for name in INCEPTIONS:
            x = self.get_submodule(f"inception{name}")(x)
            if name == "3b":
                x = _max_pool(x)
            elif name == "4e":
                x = _max_pool(x, self.last_pool)
        features: Tensor = self.dropout(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))
        return features

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.features(x))
        return logits


def _max_pool(x: Tensor, kernel: int = 3) -> Tensor:
    """Halve height and width."""
    return nn.functional.max_pool2d(x, kernel, stride=2, ceil_mode=True)


def _init_weights_as_torchvision(model: GoogLeNet) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.01, a=-0.02, b=0.02)


def _init_weights_as_caffe(model: GoogLeNet) -> None:
    """Caffe's Xavier initialization uses the fan-in only: uniform with variance 1 / fan_in."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            bound = math.sqrt(3 / module.weight[0].numel())
            nn.init.uniform_(module.weight, -bound, bound)
            if module.bias is not None:
                nn.init.constant_(module.bias, 0.0 if module is model.fc else 0.2)


def build(config: Config, dataset: Dataset) -> nn.Module:
    smallest = 15 if config.batch_norm else 31  # leaves one pixel for the last pooling
    channels, _, _ = image_shape(dataset, config.name, smallest=smallest, instead="'cnn'")
    return GoogLeNet(config, channels, len(dataset.classes))
