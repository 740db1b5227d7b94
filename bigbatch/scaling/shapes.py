"""The layers of a model part with their gradients, FLOPs and memory traffic, found with one forward pass."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from bigbatch import datasets, models, parts
from bigbatch.errors import Problem
from bigbatch.scaling.networks import BYTES_PER_NUMBER
from bigbatch.scaling.profile import LayerShape
from bigbatch.scaling.workload import Workload


def find_layer_shapes(workload: Workload) -> list[LayerShape]:
    """Return the layers in the order of the forward pass."""
    # the meta device would need no memory, but loads torch's compiler, which takes longer than one sample does
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model, inputs = build_model(workload)
        return _record_modules(model.eval(), inputs)


def build_model(workload: Workload) -> tuple[nn.Module, torch.Tensor]:
    """Build the model of a part, and one synthetic sample for it."""
    shape, classes = workload.sample_shape, workload.classes
    if min(*shape, classes) < 1:
        raise Problem(f"a sample of shape {shape} with {classes} classes is empty: use numbers from 1 on")
    synthetic = {"name": "synthetic", "sample_shape": shape, "classes": classes, "samples": 1}
    dataset = datasets.load(parts.configure("datasets", synthetic))
    model = models.build(parts.configure("models", {**workload.options, "name": workload.name}), dataset)
    return model, dataset.train.fetch(torch.arange(1))[0]


def _record_modules(model: nn.Module, inputs: torch.Tensor) -> list[LayerShape]:
    """Record every module without children that forward calls. Functions (ReLUs, sums) are not recorded."""
    found: list[LayerShape] = []
    counted: set[int] = set()

    def record(name: str, module: torch.nn.Module, given: tuple[Any, ...], output: Any) -> None:
        numbers_in = sum(tensor.numel() for tensor in given if isinstance(tensor, torch.Tensor))
        result = output if isinstance(output, torch.Tensor) else output[0]
        own = [one for one in module.parameters() if one.requires_grad and id(one) not in counted]
        counted.update(map(id, own))
        sizes = tuple(one.numel() * one.element_size() for one in own)
        found.append(LayerShape(name, sizes, _flops(module, result), BYTES_PER_NUMBER * (numbers_in + result.numel())))

    hooks = [
        module.register_forward_hook(lambda module, given, output, name=name: record(name, module, given, output))
        for name, module in model.named_modules()
        if not list(module.children())
    ]
    try:
        model(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if not any(shape.gradient_bytes for shape in found):
        raise Problem(f"{type(model).__name__} has no parameter that its layers use: use a model with parameters")
    return found


def _flops(module: nn.Module, output: torch.Tensor) -> float:
    """Two for each weight of a matrix or kernel at each position of the output."""
    if isinstance(module, nn.Embedding):
        return 0.0
    channels = output.shape[1] if isinstance(module, nn.modules.conv._ConvNd) else output.shape[-1]
    positions = output.numel() / max(1, channels)
    return 2.0 * positions * sum(math.prod(weight.shape) for weight in module.parameters() if weight.ndim >= 2)
