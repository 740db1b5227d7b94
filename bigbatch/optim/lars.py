"""LARS: a learning rate for each layer in proportion to ‖w‖/‖g‖ (You, Gitman, Ginsburg 2017, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor
from torch.optim.optimizer import ParamsT

from bigbatch import layers
from bigbatch.optim import builder_for
from bigbatch.optim.layerwise.base import Group
from bigbatch.optim.layerwise.momentum import LayerWiseMomentum
from bigbatch.optim.layerwise.options import Momentum, config_from_constructor, constructor_options


def local_lr(weight_norm: float, gradient_norm: float, trust: float, weight_decay: float, eps: float) -> float:
    """λ of LARS, Algorithm 1: η‖w‖ / (‖g‖ + β‖w‖).

    Many libraries divide by ‖g + βw‖ instead: `norm="joint"`.
    A zero norm gives 1, so that zero-initialised tensors still move.
    """
    if weight_norm == 0 or gradient_norm == 0:
        return 1.0
    return trust * weight_norm / (gradient_norm + weight_decay * weight_norm + eps)


class LARS(LayerWiseMomentum):
    """Layer-wise adaptive learning rate scaling, Algorithm 1: v ← m·v + lr·λ·(g + βw); w ← w − v.

        optimizer = LARS(model.parameters(), lr=0.1, weight_decay=5e-4, trust_coefficient=0.02)
        loss(model(inputs), targets).backward()
        optimizer.step()

    The paper's η, `trust_coefficient` = 0.001, goes with learning rates of 2 to 40 for every tensor. Excluded tensors
    take `lr` as it is and need a lower one: raise the trust coefficient in proportion, as above.
    `norm`: "sum" is the paper's λ = η‖w‖ / (‖g‖ + β‖w‖ + eps); "joint" divides by ‖g + βw‖ + eps, as optax does.
    `momentum_form`: "inside" is the paper's, each step's lr goes into the momentum; "outside" multiplies the whole
    momentum by the current learning rate, as timm does: v ← m·v + λ·(g + βw); w ← w − lr·v.
    `trust_clip`: λ is at most 1, as in LARC.
    `exclude`: tensors that take `lr` as it is (λ = 1): a name of `bigbatch.layers.RULES`, callable(parameter) or
    callable(name, parameter). `group["excluded"]` lists which. Weight decay is independent of it.
    λ is also 1 where ‖w‖ or ‖g‖ is zero.
    `foreach`, `fused`: as in torch.optim.SGD; None chooses what is fast on the device. `fused` is for the CPU.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: NonNegativeFloat = 0.1,
        momentum: Momentum = 0.9,
        weight_decay: NonNegativeFloat = 0.0,
        trust_coefficient: PositiveFloat = 0.001,
        eps: NonNegativeFloat = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
        *,
        norm: Literal["sum", "joint"] = "sum",
        momentum_form: Literal["inside", "outside"] = "inside",
        trust_clip: bool = False,
        exclude: layers.Rule = "one_dimensional",
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, constructor_options(locals()))

    def _tensors_to_norm(self, group: Group, parameter: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
        if group["norm"] == "joint" and group["weight_decay"]:
            sign = -1.0 if group["maximize"] else 1.0
            # −(g + βw) has the same norm
            return parameter, gradient.add(parameter, alpha=sign * group["weight_decay"])
        return parameter, gradient

    def _trust_ratio(self, group: Group, norms: Sequence[float], elements: int) -> float:
        weight_decay = group["weight_decay"] if group["norm"] == "sum" else 0.0
        ratio = local_lr(norms[0], norms[1], group["trust_coefficient"], weight_decay, group["eps"])
        return min(ratio, 1.0) if group["trust_clip"] else ratio


Config = config_from_constructor(LARS)
build = builder_for(LARS)
