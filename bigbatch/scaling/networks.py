"""Layers of the published networks in networks.toml: VGG-16 and Inception-V3."""

from __future__ import annotations

import tomllib
from pathlib import Path

from bigbatch.scaling.profile import LayerShape

BYTES_PER_NUMBER = 4  # float32
NETWORKS = tomllib.loads(Path(__file__).with_name("networks.toml").read_text(encoding="utf-8"))


def network_layers(name: str) -> list[LayerShape]:
    """Return the layers of a published network in the order of the forward pass."""
    network, layers = NETWORKS[name], []
    for block in network["blocks"]:
        for branch in block["branches"]:
            inputs = block["inputs"]
            for conv, outputs, height, width, size in branch:
                label, weights, pixels = f"{block['name']}{conv}", inputs * outputs * height * width, size * size
                numbers = pixels * (inputs + outputs)
                if network["batchnorm"]:
                    layers.append(_layer(f"{label}.conv", (weights,), weights, pixels, numbers))
                    layers.append(_layer(f"{label}.bn", (outputs, outputs), 0, pixels, 2 * pixels * outputs))
                else:
                    layers.append(_layer(label, (weights, outputs), weights, pixels, numbers))
                inputs = outputs
    for label, inputs, outputs in network["linear"]:
        layers.append(_layer(label, (inputs * outputs, outputs), inputs * outputs, 1, inputs + outputs))
    return layers


def _layer(name: str, tensors: tuple[int, ...], weights: int, positions: int, numbers: int) -> LayerShape:
    sizes = tuple(BYTES_PER_NUMBER * count for count in tensors)
    return LayerShape(name, sizes, 2.0 * weights * positions, BYTES_PER_NUMBER * numbers)
