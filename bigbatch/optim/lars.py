"""LARS: a learning rate for each layer in proportion to ‖w‖/‖g‖ (You, Gitman, Ginsburg 2017, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field
from torch import Tensor
from torch.nn import Parameter

from bigbatch import layers, parts
from bigbatch.optim._layerwise import Group, ScaledMomentum, one_of


class Config(parts.Config):
    """The paper's η = .001 goes with lrs of 2 to 40 for every tensor. Here biases and norms take `lr` as it is and
    would not bear that, so the default pair has the product of the paper's smallest lr, with a lr fit for them."""

    lr: float = Field(0.1, ge=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    trust_coefficient: float = Field(0.02, gt=0)
    eps: float = Field(0.0, ge=0)
    nesterov: bool = False
    norm: Literal["sum", "joint"] = "sum"
    momentum_form: Literal["inside", "outside"] = "inside"
    trust_clip: bool = False
    exclude: layers.RuleName = "one_dimensional"


def build(config: Config, named_parameters: Sequence[tuple[str, Parameter]]) -> LARS:
    return LARS(named_parameters, **config.model_dump(exclude={"name"}))


def local_lr(weight_norm: float, gradient_norm: float, trust: float, weight_decay: float, eps: float) -> float:
    """λ of LARS, Algorithm 1: η‖w‖ / (‖g‖ + β‖w‖).

    Many libraries divide by ‖g + βw‖ instead: `norm="joint"`.
    A zero norm gives 1, so that zero-initialised tensors still move.
    """
    if weight_norm == 0 or gradient_norm == 0:
        return 1.0
    return trust * weight_norm / (gradient_norm + weight_decay * weight_norm + eps)


class LARS(ScaledMomentum):
    """Layer-wise adaptive learning rate scaling, Algorithm 1: v ← m·v + lr·λ·(g + βw); w ← w − v.

        optimizer = LARS(model.parameters(), lr=0.1, weight_decay=5e-4, trust_coefficient=0.02)
        loss(model(inputs), targets).backward()
        optimizer.step()

    `norm`: "sum" is the paper's λ = η‖w‖ / (‖g‖ + β‖w‖ + eps); "joint" divides by ‖g + βw‖ + eps, as optax does.
    `momentum_form`: "inside" is the paper's, each step's lr goes into the momentum; "outside" multiplies the whole
    momentum by the present learning rate, as timm does: v ← m·v + λ·(g + βw); w ← w − lr·v.
    `trust_clip`: λ is at most 1, as in LARC.
    `exclude`: tensors that take `lr` as it is, λ = 1: a name of `bigbatch.layers.RULES`, callable(parameter) or
    callable(name, parameter). Each group keeps the answers in `group["excluded"]`. Weight decay is independent of it.
    λ is 1 too where ‖w‖ or ‖g‖ is zero.
    `foreach`, `fused`: as in torch.optim.SGD; None chooses what is fast on the device. `fused` is for the CPU.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
        eps: float = 0.0,
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
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient,
            "eps": eps,
            "nesterov": nesterov,
            "maximize": maximize,
            "norm": norm,
            "momentum_form": momentum_form,
            "trust_clip": trust_clip,
            "exclude": exclude,
            "foreach": foreach,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def _check(self, group: Group) -> None:
        super()._check(group)
        one_of("norm", group["norm"], ("sum", "joint"))
        one_of("momentum_form", group["momentum_form"], ("inside", "outside"))

    def _measured(self, group: Group, parameter: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
        if group["norm"] == "joint" and group["weight_decay"]:
            sign = -1.0 if group["maximize"] else 1.0
            # the norm of the sum is the same with both signs turned
            return parameter, gradient.add(parameter, alpha=sign * group["weight_decay"])
        return parameter, gradient

    def _ratio(self, group: Group, norms: Sequence[float], elements: int) -> float:
        weight_decay = group["weight_decay"] if group["norm"] == "sum" else 0.0
        ratio = local_lr(norms[0], norms[1], group["trust_coefficient"], weight_decay, group["eps"])
        return min(ratio, 1.0) if group["trust_clip"] else ratio
