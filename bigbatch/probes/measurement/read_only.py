"""Leave a model as it was: random numbers, buffers, gradients, modes, frozen tensors."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

# None leaves each module in its present mode
Mode = Literal["train", "eval"] | None


@contextmanager
def preserve_model(model: nn.Module, mode: Mode = None) -> Iterator[None]:
    """Within it the model may be run in any way; afterwards all of its state and all random streams are restored.

    Gradients are removed meanwhile, so that a backward pass within cannot add to them.
    """
    modes = [(module, module.training) for module in model.modules()]
    norms = [
        (module, module.momentum, module.track_running_stats)
        for module in model.modules()
        if isinstance(module, _BatchNorm)
    ]
    buffers = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    parameters = [(parameter, parameter.grad, parameter.requires_grad) for parameter in model.parameters()]
    python, numpy = random.getstate(), np.random.get_state()
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    for parameter, _, _ in parameters:
        parameter.grad = None
    if mode is not None:
        model.train(mode == "train")
    try:
        with torch.random.fork_rng(gpus):
            yield
    finally:
        for module, was_training in modes:
            module.training = was_training
        for norm, momentum, tracked in norms:
            norm.momentum, norm.track_running_stats = momentum, tracked
        for module, name, buffer, before in buffers:
            module._buffers[name] = buffer  # it may have been replaced by another tensor
            with torch.no_grad():
                buffer.copy_(before)
        for parameter, gradient, required in parameters:
            parameter.requires_grad_(required)
            parameter.grad = gradient
        random.setstate(python)
        np.random.set_state(numpy)


@contextmanager
def preserve_tensors(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Within it the tensors may be written to; afterwards they are restored bit for bit. Yields copies of them."""
    copies = [tensor.detach().clone() for tensor in tensors]
    try:
        yield copies
    finally:
        with torch.no_grad():
            for tensor, before in zip(tensors, copies, strict=True):
                tensor.copy_(before)
