"""A model part as layers with their gradients, FLOPs and traffic, found by showing it one sample."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bigbatch import models, parts
from bigbatch.datasets import Dataset
from bigbatch.errors import Problem
from bigbatch.scaling.networks import BYTES_A_NUMBER, Shape


def of_part(name: str, options: Mapping[str, Any], sample_shape: tuple[int, ...], classes: int) -> list[Shape]:
    """The layers in the order of the forward pass, for one sample."""
    import torch

    # the meta device would need no memory, but loads torch's compiler, which takes longer than one sample does
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model, inputs = built(name, options, sample_shape, classes, samples=1)
        return _called(model.eval(), inputs)


def built(
    name: str, options: Mapping[str, Any], sample_shape: tuple[int, ...], classes: int, samples: int
) -> tuple[Any, Any]:
    """The model of a part and inputs for it, made up."""
    import torch

    language = len(sample_shape) == 1
    if min(*sample_shape, classes) < 1:
        raise Problem(f"a sample of shape {sample_shape} with {classes} classes is nothing: use numbers from 1 on")
    nothing = _Nothing(sequential=language)
    dataset = Dataset(
        nothing, nothing, tuple(map(str, range(classes))), sample_shape, "", "language" if language else "classify"
    )
    model = models.build(parts.configure("models", {**options, "name": name}), dataset)
    shape = (samples, *sample_shape)
    return model, torch.zeros(shape, dtype=torch.long) if language else torch.rand(shape)


@dataclass
class _Nothing:
    """Samples of a dataset that only has a shape."""

    lazy: bool = False
    sequential: bool = False

    def __len__(self) -> int:
        return 0

    @property
    def labels(self) -> Any:
        raise NotImplementedError

    def fetch(self, indices: Any, *, seed: int = 0, epoch: int | None = None) -> Any:
        raise NotImplementedError


def _called(model: Any, inputs: Any) -> list[Shape]:
    """Every module without children that forward calls; functions that are no modules (ReLUs, sums) are not seen."""
    import torch

    found: list[Shape] = []
    sent: set[int] = set()

    def note(name: str, module: torch.nn.Module, given: tuple[Any, ...], output: Any) -> None:
        numbers_in = sum(tensor.numel() for tensor in given if isinstance(tensor, torch.Tensor))
        result = output if isinstance(output, torch.Tensor) else output[0]
        own = [parameter for parameter in module.parameters() if parameter.requires_grad and id(parameter) not in sent]
        sent.update(map(id, own))
        sizes = tuple(parameter.numel() * parameter.element_size() for parameter in own)
        found.append(Shape(name, sizes, _flops(module, result), BYTES_A_NUMBER * (numbers_in + result.numel())))

    hooks = [
        module.register_forward_hook(lambda module, given, output, name=name: note(name, module, given, output))
        for name, module in model.named_modules()
        if not list(module.children())
    ]
    try:
        model(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if not any(shape.gradient_bytes for shape in found):
        raise Problem(
            f"{type(model).__name__} has no parameter that its layers use: name a model that learns something"
        )
    return found


def _flops(module: Any, output: Any) -> float:
    """Two for each weight of a matrix or kernel at each position of the output."""
    from torch import nn

    if isinstance(module, nn.Embedding):
        return 0.0
    channels = output.shape[1] if isinstance(module, nn.modules.conv._ConvNd) else output.shape[-1]
    positions = output.numel() / max(1, channels)
    return 2.0 * positions * sum(math.prod(weight.shape) for weight in module.parameters() if weight.ndim >= 2)
