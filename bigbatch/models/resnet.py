"""ResNet-18 to -152 (He et al. 2016), v1.5 as in torchvision, whose published weights load unchanged.

v1.5 puts the stride of a bottleneck on its 3 x 3 convolution; the paper has it on the first 1 x 1.
Names of parameters and buffers, their order and their initialisation are torchvision's.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.models.blocks.input_checks import image_shape


class Config(parts.Config):
    """stem "cifar" is a 3 x 3 convolution without stride or pooling, for images of about 32 pixels."""

    depth: Literal[18, 34, 50, 101, 152] = Field(50, description="layers with weights")
    stem: Literal["imagenet", "cifar"] = Field("imagenet", description="the first layer, for large or small images")
    width: float = Field(1.0, gt=0, description="multiplies the channels of every layer")
    zero_init_residual: bool = Field(
        False, description="each block starts as the identity (Goyal et al. 2017, section 5.1)"
    )


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut (Fig. 5, left)."""

    expansion = 1

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = _shortcut_projection(in_channels, channels, stride)

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        return self.bn2

    def forward(self, x: Tensor) -> Tensor:
        residual = self.bn1(self.conv1(x)).relu()
        residual = self.bn2(self.conv2(residual))
        shortcut = x if self.downsample is None else self.downsample(x)
        output: Tensor = (residual + shortcut).relu()
        return output


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1 convolutions and a shortcut (Fig. 5, right)."""

    expansion = 4

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        out_channels = channels * self.expansion
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.downsample = _shortcut_projection(in_channels, out_channels, stride)

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        return self.bn3

    def forward(self, x: Tensor) -> Tensor:
        residual = self.bn1(self.conv1(x)).relu()
        residual = self.bn2(self.conv2(residual)).relu()
        residual = self.bn3(self.conv3(residual))
        shortcut = x if self.downsample is None else self.downsample(x)
        output: Tensor = (residual + shortcut).relu()
        return output


def _shortcut_projection(in_channels: int, out_channels: int, stride: int) -> nn.Sequential | None:
    """Return option B of the paper: a 1 x 1 convolution where the shape changes, else None."""
    if stride == 1 and in_channels == out_channels:
        return None
    return nn.Sequential(nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels))


Block = type[BasicBlock] | type[Bottleneck]

# Pixels per side that leave two for the last stage to stride over. With one, its 3 x 3 kernels see mostly padding, and
# torch 2.13's bfloat16 convolution on CPU leaves the gradients of those weights uninitialised.
SMALLEST = {"imagenet": 17, "cifar": 5}

LAYOUTS: dict[int, tuple[Block, tuple[int, int, int, int]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
    152: (Bottleneck, (3, 8, 36, 3)),
}


class ResNet(nn.Module):
    def __init__(self, config: Config, in_channels: int, classes: int) -> None:
        super().__init__()
        block, blocks = LAYOUTS[config.depth]
        channels = [max(1, round(config.width * base)) for base in (64, 128, 256, 512)]
        outputs = [count * block.expansion for count in channels]

        if config.stem == "imagenet":
            self.conv1 = nn.Conv2d(in_channels, channels[0], 7, stride=2, padding=3, bias=False)
        else:
            self.conv1 = nn.Conv2d(in_channels, channels[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels[0])
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if config.stem == "imagenet" else nn.Identity()
        self.layer1 = _build_stage(block, blocks[0], channels[0], channels[0], stride=1)
        self.layer2 = _build_stage(block, blocks[1], outputs[0], channels[1], stride=2)
        self.layer3 = _build_stage(block, blocks[2], outputs[1], channels[2], stride=2)
        self.layer4 = _build_stage(block, blocks[3], outputs[2], channels[3], stride=2)
        self.fc = nn.Linear(outputs[3], classes)
        _init_weights(self, config.zero_init_residual)

    def features(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.features(x))
        return logits


def _build_stage(block: Block, count: int, in_channels: int, channels: int, stride: int) -> nn.Sequential:
    first = block(in_channels, channels, stride)
    return nn.Sequential(first, *(block(channels * block.expansion, channels, 1) for _ in range(count - 1)))


def _init_weights(model: ResNet, zero_init_residual: bool) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, BasicBlock | Bottleneck) and zero_init_residual:
            nn.init.zeros_(module.last_norm.weight)


def build(config: Config, dataset: Dataset) -> nn.Module:
    instead = "stem 'cifar' (5 pixels and more) or 'cnn'" if config.stem == "imagenet" else "'cnn'"
    channels, _, _ = image_shape(dataset, config.name, smallest=SMALLEST[config.stem], instead=instead)
    return ResNet(config, channels, len(dataset.classes))
