"""PercentDelta: a learning rate for each layer that changes its weights by a like percentage (Abu-El-Haija 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import Parameter

from bigbatch import layers, parts
from bigbatch.optim._layerwise import Group, ScaledMomentum


class Config(parts.Config):
    lr: float = Field(0.1, ge=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    trust_coefficient: float = Field(0.05, gt=0)
    eps: float = Field(1e-3, ge=0)
    nesterov: bool = False
    exclude: layers.RuleName = "one_dimensional"


def build(config: Config, named_parameters: Sequence[tuple[str, Parameter]]) -> PercentDelta:
    return PercentDelta(named_parameters, **config.model_dump(exclude={"name"}))


def local_lr(weight_norm: float, relative_gradient_norm: float, *, elements: int, trust: float) -> float:
    """Eq. 24 of Gao & Zhong 2020: γ·size(w) / ‖g/w‖₁. A zero norm gives 1."""
    if weight_norm == 0 or relative_gradient_norm == 0:
        return 1.0
    return trust * elements / relative_gradient_norm


class PercentDelta(ScaledMomentum):
    """PercentDelta, eq. 24 of Gao & Zhong 2020: v ← m·v + lr·λ·(g + βw), λ = γ·n / Σ(|g + βw| / (|w| + eps)).

        optimizer = PercentDelta(model.parameters(), lr=0.1, trust_coefficient=0.05)
        loss(model(inputs), targets).backward()
        optimizer.step()

    `trust_coefficient` is γ. `eps` is not in the paper: weights near zero would be the whole sum without it; at
    eps=0 a single zero weight with a gradient stops its layer.
    `exclude`, `foreach`, `fused`: as in LARS; excluded tensors take `lr` as it is.
    """

    order = 1

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.005,
        eps: float = 1e-3,
        nesterov: bool = False,
        maximize: bool = False,
        *,
        exclude: layers.Rule = "one_dimensional",
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient,
            "eps": eps,
            "nesterov": nesterov,
            "maximize": maximize,
            "exclude": exclude,
            "foreach": foreach,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def _measured(self, group: Group, parameter: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
        sign = -1.0 if group["maximize"] else 1.0
        step = gradient.add(parameter, alpha=sign * group["weight_decay"]) if group["weight_decay"] else gradient
        relative = step / parameter.abs().add_(group["eps"])
        # 0/0: a weight that neither is nor moves says nothing about its layer
        return parameter, torch.where(relative.isnan() & (step == 0), 0.0, relative)

    def _ratio(self, group: Group, norms: Sequence[float], elements: int) -> float:
        return local_lr(*norms, elements=elements, trust=group["trust_coefficient"])
