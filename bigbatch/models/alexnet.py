"""AlexNet (Krizhevsky et al. 2012) for ImageNet or CIFAR, in one tower or two, with LRN, BatchNorm or neither.

tower "one" is Krizhevsky's later form (2014) with torchvision's names, initialisation and 61,100,840 parameters.
tower "two" is the original as Caffe trains it, the AlexNet of the LARS paper: two groups, local response
normalisation after the first two ReLUs, Gaussian weights; 60,965,224 parameters.
With `batch_norm` it is that paper's AlexNet-BN: no LRN, and BatchNorm between each convolution and its ReLU.
variant "cifar" has the same five convolutions at stride 1 with kernels of 5, 3, 3, 3 and 3 pixels, and hidden layers
of 1024 units on a grid of 3 x 3; it takes images of 15 pixels and more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from pydantic import Field
from torch import Tensor, nn

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.models.blocks.input_checks import image_shape


class Config(parts.Config):
    variant: Literal["imagenet", "cifar"] = Field("imagenet", description="for large or small images")
    tower: Literal["one", "two"] = Field("one", description="one: Krizhevsky 2014; two: the original, as in LARS")
    batch_norm: bool = Field(False, description="AlexNet-BN: BatchNorm in the place of LRN")
    dropout: float = Field(0.5, ge=0, lt=1, description="on the inputs of hidden linear layers")


class Geometry(NamedTuple):
    """Sizes that depend on the size of the image."""

    kernels: tuple[int, ...]
    first_stride: int
    grid: int  # pixels per side that reach the linear layers
    hidden: int
    smallest: int  # pixels per side that leave one pixel after the last pooling


class Tower(NamedTuple):
    channels: tuple[int, ...]
    groups: tuple[int, ...]


GEOMETRIES = {
    "imagenet": Geometry(kernels=(11, 5, 3, 3, 3), first_stride=4, grid=6, hidden=4096, smallest=63),
    "cifar": Geometry(kernels=(5, 3, 3, 3, 3), first_stride=1, grid=3, hidden=1024, smallest=15),
}
TOWERS = {
    "one": Tower(channels=(64, 192, 384, 256, 256), groups=(1, 1, 1, 1, 1)),
    "two": Tower(channels=(96, 256, 384, 384, 256), groups=(1, 2, 1, 2, 2)),
}
POOLED = (0, 1, 4)  # the convolutions followed by a pooling
NORMALISED = (0, 1)  # the convolutions followed by LRN
CAFFE_BIASES = (0.0, 0.1, 0.0, 0.1, 0.1, 0.1, 0.1, 0.0)  # five convolutions, three linear layers


class Convolutions(nn.Sequential):
    """torchvision gives the name `features` to the convolutions, bigbatch to the input of the last layer.

    So the parameters inside keep torchvision's names, and a call continues with the hidden linear layers.
    """

    then: Callable[[Tensor], Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer(x)
        return x if self.then is None else self.then(x)


class AlexNet(nn.Module):
    def __init__(self, config: Config, in_channels: int, classes: int) -> None:
        super().__init__()
        geometry = GEOMETRIES[config.variant]
        self.features = Convolutions(*_build_convolutions(config, in_channels))
        self.features.then = self._hidden_layers
        self.avgpool = nn.AdaptiveAvgPool2d(geometry.grid)
        self.classifier = _build_linear_layers(config, classes)
        if config.tower == "two":
            _init_weights_as_caffe(self)

    def _hidden_layers(self, maps: Tensor) -> Tensor:
        features: Tensor = self.classifier[:-1](self.avgpool(maps).flatten(1))
        return features

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier[-1](self.features(x))
        return logits


def _build_convolutions(config: Config, in_channels: int) -> list[nn.Module]:
    geometry, tower = GEOMETRIES[config.variant], TOWERS[config.tower]
    layers: list[nn.Module] = []
    for index, (kernel, channels, groups) in enumerate(zip(geometry.kernels, *tower, strict=True)):
        stride = geometry.first_stride if index == 0 else 1
        padding = 2 if index == 0 else kernel // 2
        layers.append(
            nn.Conv2d(in_channels, channels, kernel, stride, padding, groups=groups, bias=not config.batch_norm)
        )
        if config.batch_norm:
            layers.append(nn.BatchNorm2d(channels))
        layers.append(nn.ReLU())
        if index in NORMALISED and config.tower == "two" and not config.batch_norm:
            layers.append(nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=1))
        if index in POOLED:
            layers.append(nn.MaxPool2d(3, stride=2))
        in_channels = channels
    return layers


def _build_linear_layers(config: Config, classes: int) -> nn.Sequential:
    geometry = GEOMETRIES[config.variant]
    first = nn.Linear(TOWERS[config.tower].channels[-1] * geometry.grid**2, geometry.hidden)
    second = nn.Linear(geometry.hidden, geometry.hidden)
    last = nn.Linear(geometry.hidden, classes)

    def dropout() -> nn.Module:
        return nn.Dropout(config.dropout)

    if config.tower == "one":
        return nn.Sequential(dropout(), first, nn.ReLU(), dropout(), second, nn.ReLU(), last)
    return nn.Sequential(first, nn.ReLU(), dropout(), second, nn.ReLU(), dropout(), last)


def _init_weights_as_caffe(model: AlexNet) -> None:
    """Standard deviation 0.01, but 0.005 in hidden linear layers, and the biases of Caffe."""
    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    for layer, bias in zip(layers, CAFFE_BIASES, strict=True):
        hidden = isinstance(layer, nn.Linear) and layer is not layers[-1]
        nn.init.normal_(layer.weight, std=0.005 if hidden else 0.01)
        if layer.bias is not None:
            nn.init.constant_(layer.bias, bias)


def build(config: Config, dataset: Dataset) -> nn.Module:
    instead = "variant 'cifar' (15 pixels and more) or 'cnn'" if config.variant == "imagenet" else "'cnn'"
    smallest = GEOMETRIES[config.variant].smallest
    channels, _, _ = image_shape(dataset, config.name, smallest=smallest, instead=instead)
    return AlexNet(config, channels, len(dataset.classes))
