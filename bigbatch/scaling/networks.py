"""Layers by arithmetic, for the networks that published measurements used and bigbatch has no part for.

VGG-16 (Simonyan & Zisserman 2015, configuration D, 224 pixels): 138,357,544 parameters.
Inception-V3 (Szegedy et al. 2016, 299 pixels, with BatchNorm, without the auxiliary head): 23,834,568 parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

BYTES_A_NUMBER = 4  # float32


@dataclass(frozen=True)
class Shape:
    """One layer: the gradients it brings; for one sample, its FLOPs forward and the activations it reads and writes."""

    name: str
    gradient_bytes: tuple[int, ...]
    flops: float
    activation_bytes: float


def _layer(name: str, tensors: tuple[int, ...], weights: int, positions: int, numbers: int) -> Shape:
    sizes = tuple(BYTES_A_NUMBER * count for count in tensors)
    return Shape(name, sizes, 2.0 * weights * positions, BYTES_A_NUMBER * numbers)


def vgg16() -> list[Shape]:
    found, size, channels = [], 224, 3
    for block, (count, width) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), start=1):
        for index in range(1, count + 1):
            weights, pixels = 9 * channels * width, size * size
            numbers = pixels * (channels + width)
            found.append(_layer(f"conv{block}_{index}", (weights, width), weights, pixels, numbers))
            channels = width
        size //= 2
    for name, inputs, outputs in (("fc6", 512 * 7 * 7, 4096), ("fc7", 4096, 4096), ("fc8", 4096, 1000)):
        found.append(_layer(name, (inputs * outputs, outputs), inputs * outputs, 1, inputs + outputs))
    return found


def inception3() -> list[Shape]:
    found: list[Shape] = []

    def conv(name: str, inputs: int, outputs: int, height: int, width: int, size: int) -> int:
        """A convolution to `size` x `size` pixels with its BatchNorm; returns its channels."""
        weights, pixels = inputs * outputs * height * width, size * size
        found.append(_layer(f"{name}.conv", (weights,), weights, pixels, pixels * (inputs + outputs)))
        found.append(_layer(f"{name}.bn", (outputs, outputs), 0, pixels, 2 * pixels * outputs))
        return outputs

    for name, inputs, outputs, kernel, size in (
        ("1a", 3, 32, 3, 149),
        ("2a", 32, 32, 3, 147),
        ("2b", 32, 64, 3, 147),
        ("3b", 64, 80, 1, 73),
        ("4a", 80, 192, 3, 71),
    ):
        conv(name, inputs, outputs, kernel, kernel, size)
    channels = 192
    for name, pool in (("5b", 32), ("5c", 64), ("5d", 64)):
        channels = _block_a(conv, name, channels, pool)
    channels = _reduction_b(conv, "6a", channels)
    for name, inner in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        channels = _block_c(conv, name, channels, inner)
    channels = _reduction_d(conv, "7a", channels)
    for name in ("7b", "7c"):
        channels = _block_e(conv, name, channels)
    found.append(_layer("fc", (channels * 1000, 1000), channels * 1000, 1, channels + 1000))
    return found


Conv = Callable[[str, int, int, int, int, int], int]


def _block_a(conv: Conv, name: str, inputs: int, pool: int) -> int:
    """Fig. 5 of the paper, on 35 x 35 pixels."""
    one = conv(f"{name}.1x1", inputs, 64, 1, 1, 35)
    five = conv(f"{name}.5x5_2", conv(f"{name}.5x5_1", inputs, 48, 1, 1, 35), 64, 5, 5, 35)
    three = conv(f"{name}.3x3_1", inputs, 64, 1, 1, 35)
    three = conv(f"{name}.3x3_3", conv(f"{name}.3x3_2", three, 96, 3, 3, 35), 96, 3, 3, 35)
    return one + five + three + conv(f"{name}.pool", inputs, pool, 1, 1, 35)


def _reduction_b(conv: Conv, name: str, inputs: int) -> int:
    three = conv(f"{name}.3x3", inputs, 384, 3, 3, 17)
    double = conv(f"{name}.3x3dbl_2", conv(f"{name}.3x3dbl_1", inputs, 64, 1, 1, 35), 96, 3, 3, 35)
    return three + conv(f"{name}.3x3dbl_3", double, 96, 3, 3, 17) + inputs


def _block_c(conv: Conv, name: str, inputs: int, inner: int) -> int:
    """Fig. 6, on 17 x 17 pixels: 7 x 7 kernels as 1 x 7 and 7 x 1."""
    one = conv(f"{name}.1x1", inputs, 192, 1, 1, 17)
    seven = conv(f"{name}.7x7_2", conv(f"{name}.7x7_1", inputs, inner, 1, 1, 17), inner, 1, 7, 17)
    seven = conv(f"{name}.7x7_3", seven, 192, 7, 1, 17)
    double = conv(f"{name}.7x7dbl_1", inputs, inner, 1, 1, 17)
    for index, (height, width, outputs) in enumerate(((7, 1, inner), (1, 7, inner), (7, 1, inner), (1, 7, 192))):
        double = conv(f"{name}.7x7dbl_{index + 2}", double, outputs, height, width, 17)
    return one + seven + double + conv(f"{name}.pool", inputs, 192, 1, 1, 17)


def _reduction_d(conv: Conv, name: str, inputs: int) -> int:
    three = conv(f"{name}.3x3_2", conv(f"{name}.3x3_1", inputs, 192, 1, 1, 17), 320, 3, 3, 8)
    seven = conv(f"{name}.7x7x3_1", inputs, 192, 1, 1, 17)
    seven = conv(f"{name}.7x7x3_3", conv(f"{name}.7x7x3_2", seven, 192, 1, 7, 17), 192, 7, 1, 17)
    return three + conv(f"{name}.7x7x3_4", seven, 192, 3, 3, 8) + inputs


def _block_e(conv: Conv, name: str, inputs: int) -> int:
    """Fig. 7, on 8 x 8 pixels."""
    one = conv(f"{name}.1x1", inputs, 320, 1, 1, 8)
    three = conv(f"{name}.3x3_1", inputs, 384, 1, 1, 8)
    three = conv(f"{name}.3x3_2a", three, 384, 1, 3, 8) + conv(f"{name}.3x3_2b", three, 384, 3, 1, 8)
    double = conv(f"{name}.3x3dbl_2", conv(f"{name}.3x3dbl_1", inputs, 448, 1, 1, 8), 384, 3, 3, 8)
    double = conv(f"{name}.3x3dbl_3a", double, 384, 1, 3, 8) + conv(f"{name}.3x3dbl_3b", double, 384, 3, 1, 8)
    return one + three + double + conv(f"{name}.pool", inputs, 192, 1, 1, 8)


NETWORKS: dict[str, Callable[[], list[Shape]]] = {"vgg16": vgg16, "inception3": inception3}
