"""Sharpness-aware minimisation (Foret et al. 2021, arXiv 2010.01412): the gradient at the worst point nearby.

ε = ρ·g(w)/‖g(w)‖ (equation 2); the step is taken from w with the gradient at w + ε (algorithm 1). It costs a second
gradient per step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import nn

from bigbatch.training.gradient import BatchSums, GlobalGradient


def compute_sam_gradient(gradient: GlobalGradient, radius: float, compute: Callable[[], BatchSums]) -> BatchSums:
    """Leave the gradient at w + ε in `.grad` and return the sums at w.

    Weights, BatchNorm statistics and hidden state are as after one pass.
    """
    model, forward = gradient.model, gradient.forward
    state_before = deepcopy(forward.hidden_state)
    sums = compute()
    state_after, forward.hidden_state = forward.hidden_state, state_before
    buffers = [buffer.clone() for buffer in model.buffers()]
    recorder, gradient.micro_gradients = gradient.micro_gradients, None  # probes read the gradient at w
    with _perturbed(model, radius):
        model.zero_grad(set_to_none=True)
        compute()
    gradient.micro_gradients, forward.hidden_state = recorder, state_after
    for buffer, before in zip(model.buffers(), buffers, strict=True):
        buffer.copy_(before)
    return sums


@contextmanager
def _perturbed(model: nn.Module, radius: float) -> Iterator[None]:
    """Move the weights by `radius` along the gradient, and back at the end."""
    moved = [parameter for parameter in model.parameters() if parameter.grad is not None]
    before = [parameter.detach().clone() for parameter in moved]
    gradients = [parameter.grad for parameter in moved if parameter.grad is not None]
    with torch.no_grad():
        scale = radius / torch.nn.utils.get_total_norm(gradients).clamp(min=torch.finfo(torch.float32).tiny)
        for parameter, grad in zip(moved, gradients, strict=True):
            parameter.add_(grad * scale)
    yield
    with torch.no_grad():
        for parameter, original in zip(moved, before, strict=True):
            parameter.copy_(original)
