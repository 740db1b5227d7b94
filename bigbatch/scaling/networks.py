"""Layers of networks that published measurements used and that are not model parts of bigbatch.

VGG-16 (Simonyan & Zisserman 2015, configuration D, 224 pixels): 138,357,544 parameters.
Inception-V3 (Szegedy et al. 2016, 299 pixels, with BatchNorm, without the auxiliary head): 23,834,568 parameters.
"""

from __future__ import annotations

from collections.abc import Callable

from bigbatch.scaling.profile import LayerShape

BYTES_PER_NUMBER = 4  # float32


def _layer(name: str, tensors: tuple[int, ...], weights: int, positions: int, numbers: int) -> LayerShape:
    sizes = tuple(BYTES_PER_NUMBER * count for count in tensors)
    return LayerShape(name, sizes, 2.0 * weights * positions, BYTES_PER_NUMBER * numbers)


def _linear(name: str, inputs: int, outputs: int) -> LayerShape:
    return _layer(name, (inputs * outputs, outputs), inputs * outputs, 1, inputs + outputs)


def vgg16() -> list[LayerShape]:
    layers, size, channels = [], 224, 3
    for block, (count, width) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), start=1):
        for index in range(1, count + 1):
            weights, pixels = 9 * channels * width, size * size
            numbers = pixels * (channels + width)
            layers.append(_layer(f"conv{block}_{index}", (weights, width), weights, pixels, numbers))
            channels = width
        size //= 2
    return [*layers, _linear("fc6", 512 * 7 * 7, 4096), _linear("fc7", 4096, 4096), _linear("fc8", 4096, 1000)]


_Conv = tuple[str, int, int, int, int]  # name, output channels, kernel height and width, output size in pixels
_Branches = tuple[tuple[_Conv, ...], ...]  # of a block: each begins with the block's input


def _block_a(pool: int) -> _Branches:
    """Fig. 5 of the paper, on 35 x 35 pixels."""
    return (
        (("1x1", 64, 1, 1, 35),),
        (("5x5_1", 48, 1, 1, 35), ("5x5_2", 64, 5, 5, 35)),
        (("3x3_1", 64, 1, 1, 35), ("3x3_2", 96, 3, 3, 35), ("3x3_3", 96, 3, 3, 35)),
        (("pool", pool, 1, 1, 35),),
    )


def _block_c(inner: int) -> _Branches:
    """Fig. 6, on 17 x 17 pixels: 7 x 7 kernels as 1 x 7 and 7 x 1."""
    return (
        (("1x1", 192, 1, 1, 17),),
        (("7x7_1", inner, 1, 1, 17), ("7x7_2", inner, 1, 7, 17), ("7x7_3", 192, 7, 1, 17)),
        (
            *(("7x7dbl_1", inner, 1, 1, 17), ("7x7dbl_2", inner, 7, 1, 17), ("7x7dbl_3", inner, 1, 7, 17)),
            *(("7x7dbl_4", inner, 7, 1, 17), ("7x7dbl_5", 192, 1, 7, 17)),
        ),
        (("pool", 192, 1, 1, 17),),
    )


_REDUCTION_B: _Branches = (
    (("3x3", 384, 3, 3, 17),),
    (("3x3dbl_1", 64, 1, 1, 35), ("3x3dbl_2", 96, 3, 3, 35), ("3x3dbl_3", 96, 3, 3, 17)),
)
_REDUCTION_D: _Branches = (
    (("3x3_1", 192, 1, 1, 17), ("3x3_2", 320, 3, 3, 8)),
    (("7x7x3_1", 192, 1, 1, 17), ("7x7x3_2", 192, 1, 7, 17), ("7x7x3_3", 192, 7, 1, 17), ("7x7x3_4", 192, 3, 3, 8)),
)
# Fig. 7, on 8 x 8 pixels: _2a and _2b, _3a and _3b have the same input, which has as many channels as their output
_BLOCK_E: _Branches = (
    (("1x1", 320, 1, 1, 8),),
    (("3x3_1", 384, 1, 1, 8), ("3x3_2a", 384, 1, 3, 8), ("3x3_2b", 384, 3, 1, 8)),
    (("3x3dbl_1", 448, 1, 1, 8), ("3x3dbl_2", 384, 3, 3, 8), ("3x3dbl_3a", 384, 1, 3, 8), ("3x3dbl_3b", 384, 3, 1, 8)),
    (("pool", 192, 1, 1, 8),),
)


def inception3() -> list[LayerShape]:
    stem = (("1a", 32, 3, 3, 149), ("2a", 32, 3, 3, 147), ("2b", 64, 3, 3, 147), ("3b", 80, 1, 1, 73),
            ("4a", 192, 3, 3, 71))  # fmt: skip
    blocks: tuple[tuple[str, int, _Branches], ...] = (
        ("", 3, (stem,)),
        *(("5b.", 192, _block_a(32)), ("5c.", 256, _block_a(64)), ("5d.", 288, _block_a(64))),
        ("6a.", 288, _REDUCTION_B),
        *((f"{name}.", 768, _block_c(inner)) for name, inner in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192))),
        ("7a.", 768, _REDUCTION_D),
        *(("7b.", 1280, _BLOCK_E), ("7c.", 2048, _BLOCK_E)),
    )
    layers: list[LayerShape] = []
    for block, block_inputs, branches in blocks:
        for branch in branches:
            inputs = block_inputs
            for name, outputs, height, width, size in branch:
                weights, pixels = inputs * outputs * height * width, size * size
                layers.append(_layer(f"{block}{name}.conv", (weights,), weights, pixels, pixels * (inputs + outputs)))
                layers.append(_layer(f"{block}{name}.bn", (outputs, outputs), 0, pixels, 2 * pixels * outputs))
                inputs = outputs
    return [*layers, _linear("fc", 2048, 1000)]


NETWORKS: dict[str, Callable[[], list[LayerShape]]] = {"vgg16": vgg16, "inception3": inception3}
