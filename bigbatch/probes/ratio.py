"""‖w‖, ‖∇w‖ and their quotient for each tensor (LARS paper, Table 2): how unevenly layers want to be trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bigbatch.errors import Problem
from bigbatch.probes.measurement.contract import ProbeConfig, ProbeState
from bigbatch.probes.measurement.objective import Loss, Objective, require_finite, tensor_norms, trainable_parameters
from bigbatch.probes.measurement.read_only import Mode, preserve_model
from bigbatch.probes.measurement.record import Record


class Config(ProbeConfig):
    pass


@dataclass(frozen=True)
class TensorRatio(Record):
    weight: float
    gradient: float
    ratio: float | None  # None where the gradient is zero


def measure(state: ProbeState, config: Config) -> dict[str, TensorRatio]:
    return ratio(state.model)


@torch.no_grad()
def ratio(
    model: nn.Module, loss: Loss | None = None, inputs: Any = None, targets: Any = None, *, mode: Mode = None
) -> dict[str, TensorRatio]:
    """`weight` ‖w‖, `gradient` ‖∇w‖ and `ratio` ‖w‖/‖∇w‖ of every tensor, from the gradient in `.grad`, or that of the
    given loss. The smallest ratio limits the learning rate of plain SGD."""
    named = trainable_parameters(model)
    if loss is None:
        gradients = {name: parameter.grad for name, parameter in named.items() if parameter.grad is not None}
        if not gradients:
            raise Problem("probe 'ratio' found no gradients: call it after backward(), or give it a loss and samples")
    else:
        with preserve_model(model, mode), torch.enable_grad():
            gradients = dict(zip(named, Objective(model, loss, inputs, targets).gradient(), strict=True))
    require_finite(list(gradients.values()), "the gradient")
    weight_norms = tensor_norms([named[name] for name in gradients]).tolist()
    gradient_norms = tensor_norms(list(gradients.values())).tolist()
    return {
        name: TensorRatio(weight, gradient, weight / gradient if gradient else None)
        for name, weight, gradient in zip(gradients, weight_norms, gradient_norms, strict=True)
    }
