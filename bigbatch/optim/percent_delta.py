"""PercentDelta: a learning rate per layer that changes all layers by a similar percentage (Abu-El-Haija 2017)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor
from torch.optim.optimizer import ParamsT

from bigbatch import layers
from bigbatch.optim import builder_for
from bigbatch.optim.layerwise.base import Group
from bigbatch.optim.layerwise.momentum import LayerWiseMomentum
from bigbatch.optim.layerwise.options import Momentum, config_from_constructor, constructor_options


def local_lr(weight_norm: float, relative_gradient_norm: float, *, elements: int, trust: float) -> float:
    """Eq. 24 of Gao & Zhong 2020: γ·size(w) / ‖g/w‖₁. A zero norm gives 1."""
    if weight_norm == 0 or relative_gradient_norm == 0:
        return 1.0
    return trust * elements / relative_gradient_norm


class PercentDelta(LayerWiseMomentum):
    """PercentDelta, eq. 24 of Gao & Zhong 2020: v ← m·v + lr·λ·(g + βw), λ = γ·n / Σ(|g + βw| / (|w| + eps)).

        optimizer = PercentDelta(model.parameters(), lr=0.1, trust_coefficient=0.05)
        loss(model(inputs), targets).backward()
        optimizer.step()

    `trust_coefficient` is γ. `eps` is not in the paper: without it weights near zero would dominate the sum; at
    eps=0 a single zero weight with a gradient stops its layer.
    `exclude`, `foreach`, `fused`: as in LARS; excluded tensors take `lr` as it is.
    """

    norm_order = 1

    def __init__(
        self,
        params: ParamsT,
        lr: NonNegativeFloat = 0.1,
        momentum: Momentum = 0.9,
        weight_decay: NonNegativeFloat = 0.0,
        trust_coefficient: PositiveFloat = 0.05,
        eps: NonNegativeFloat = 1e-3,
        nesterov: bool = False,
        maximize: bool = False,
        *,
        exclude: layers.Rule = "one_dimensional",
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, constructor_options(locals()))

    def _tensors_to_norm(self, group: Group, parameter: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
        sign = -1.0 if group["maximize"] else 1.0
        step = gradient.add(parameter, alpha=sign * group["weight_decay"]) if group["weight_decay"] else gradient
        relative = step / parameter.abs().add_(group["eps"])
        # 0/0: a zero weight with a zero step says nothing about its layer
        return parameter, torch.where(relative.isnan() & (step == 0), 0.0, relative)

    def _trust_ratio(self, group: Group, norms: Sequence[float], elements: int) -> float:
        return local_lr(*norms, elements=elements, trust=group["trust_coefficient"])


Config = config_from_constructor(PercentDelta)
build = builder_for(PercentDelta)
