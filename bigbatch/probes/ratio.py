"""‖w‖, ‖∇w‖ and their quotient for each tensor (LARS paper, Table 2): how unevenly layers want to be trained."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bigbatch import probes
from bigbatch.errors import Problem
from bigbatch.probes._objective import Loss, Objective, require_finite, trainable
from bigbatch.probes._untouched import Mode, untouched


class Config(probes.Config):
    pass


def measure(state: probes.State, config: Config) -> dict[str, Any]:
    return ratio(state.model)


def ratio(
    model: nn.Module, loss: Loss | None = None, inputs: Any = None, targets: Any = None, *, mode: Mode = None
) -> dict[str, Any]:
    """`weight` ‖w‖, `gradient` ‖∇w‖ and `ratio` ‖w‖/‖∇w‖ of every tensor: the gradient that is in `.grad`, or the
    loss's own. The smallest ratio limits the learning rate of plain SGD; None where the gradient is zero."""
    named = trainable(model)
    if loss is None:
        gradients = {name: parameter.grad for name, parameter in named.items() if parameter.grad is not None}
        if not gradients:
            raise Problem("probe 'ratio' found no gradients: call it after backward(), or give it a loss and samples")
    else:
        with untouched(model, mode):
            gradients = dict(zip(named, Objective(model, loss, inputs, targets).gradient(), strict=True))
    require_finite(list(gradients.values()), "the gradient")
    weight_norms = _norms([named[name].detach() for name in gradients])
    return {
        name: {"weight": w, "gradient": g, "ratio": w / g if g else None}
        for name, w, g in zip(gradients, weight_norms, _norms(list(gradients.values())), strict=True)
    }


@torch.no_grad()
def _norms(tensors: list[torch.Tensor]) -> list[float]:
    return torch.stack(torch._foreach_norm(tensors, dtype=torch.float64)).tolist()
