"""ResNet-20 to -110 for CIFAR (He et al. 2016, section 4.2): 16, 32 and 64 channels, shortcuts without parameters.

Names of parameters are those of akamaster/pytorch_resnet_cifar10, whose published weights load unchanged.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.models.blocks.input_checks import image_shape


class Config(parts.Config):
    """depth = 6n + 2: n blocks of two convolutions in each of three stages, a first convolution, a last linear."""

    depth: Literal[20, 32, 44, 56, 110] = Field(20, description="layers with weights")


def pad_shortcut(x: Tensor, channels: int, stride: int) -> Tensor:
    """Return option A of the paper: every `stride`-th pixel, padded by zero channels, half before and half after."""
    added = channels - x.shape[1]
    return nn.functional.pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, added // 2, added - added // 2))


class CifarBlock(nn.Module):
    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.channels, self.stride = channels, stride
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        residual = self.bn1(self.conv1(x)).relu()
        residual = self.bn2(self.conv2(residual))
        output: Tensor = (residual + pad_shortcut(x, self.channels, self.stride)).relu()
        return output


class CifarResNet(nn.Module):
    def __init__(self, depth: int, in_channels: int, classes: int) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _build_stage(blocks, 16, 16, stride=1)
        self.layer2 = _build_stage(blocks, 16, 32, stride=2)
        self.layer3 = _build_stage(blocks, 32, 64, stride=2)
        self.linear = nn.Linear(64, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def features(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x)).relu()
        x = self.layer3(self.layer2(self.layer1(x)))
        return nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.features(x))
        return logits


def _build_stage(blocks: int, in_channels: int, channels: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        CifarBlock(in_channels, channels, stride), *(CifarBlock(channels, channels, 1) for _ in range(blocks - 1))
    )


def build(config: Config, dataset: Dataset) -> nn.Module:
    channels, _, _ = image_shape(dataset, config.name, smallest=3, instead="'mlp'")  # two pixels to stride over last
    return CifarResNet(config.depth, channels, len(dataset.classes))
