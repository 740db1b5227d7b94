"""MCLR: a learning rate for each layer from the medians of weights and gradients (Gao & Zhong 2020, eqs. 20-22)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import Parameter

from bigbatch import layers, parts
from bigbatch.optim._layerwise import Group, Layer, ScaledMomentum, accumulation_dtype, alike_on_device, one_of


class Config(parts.Config):
    lr: float = Field(0.1, ge=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    trust_coefficient: float = Field(0.007, gt=0)
    eps: float = Field(0.0, ge=0)
    nesterov: bool = False
    median: Literal["absolute", "signed"] = "absolute"
    exclude: layers.RuleName = "one_dimensional"


def build(config: Config, named_parameters: Sequence[tuple[str, Parameter]]) -> MedianCurvature:
    return MedianCurvature(named_parameters, **config.model_dump(exclude={"name"}))


def local_lr(weight: float, gradient: float, *, trust: float, weight_decay: float, eps: float) -> float:
    """η_g = γ·R_m of eqs. 20-22, R_m = |w_m / (g_m + βw_m)|, from two medians. A zero median gives 1."""
    divisor = abs(gradient + weight_decay * weight)
    if weight == 0 or gradient == 0 or divisor == 0:
        return 1.0
    return trust * abs(weight) / (divisor + eps)


class MedianCurvature(ScaledMomentum):
    """Median-curvature learning rate, eqs. 20-22: v ← m·v + lr·γ·R_m·(g + βw), R_m = |w_m / (g_m + βw_m)|.

        optimizer = MedianCurvature(model.parameters(), lr=1.0)
        loss(model(inputs), targets).backward()
        optimizer.step()

    `trust_coefficient` is γ; medians want about a third of LARS's.
    `median`: "absolute" takes w_m and g_m of absolute values; "signed" of the values themselves, as the paper can be
    read: both are then near zero and their quotient jumps by decades between steps.
    Of an even number of values the median is the lower of the two in the middle. A zero median gives a ratio of 1.
    Medians of shards do not add up: of a sharded parameter each rank gathers the whole, one layer at a time.
    `exclude`, `foreach`, `fused`: as in LARS; excluded tensors take `lr` as it is.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.0003,
        eps: float = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
        *,
        median: Literal["absolute", "signed"] = "absolute",
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
            "median": median,
            "exclude": exclude,
            "foreach": foreach,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def _check(self, group: Group) -> None:
        super()._check(group)
        one_of("median", group["median"], ("absolute", "signed"))

    def _ask_ranks(self, gathered: list[tuple[Group, list[Layer]]]) -> None:
        for group, group_layers in gathered:
            for layer in group_layers:
                if layer.sharded and not layer.excluded:
                    tensors = layer.whole.full_tensor(), layer.whole.grad.full_tensor()
                    layer.norms = [_median(tensor, group).item() for tensor in tensors]

    def _measure(self, group: Group, layer: Layer) -> Sequence[float]:
        return [_median(tensor, group).item() for tensor in (layer.parameter, layer.gradient)]

    def _measure_rows(self, group: Group, weights: Tensor, gradients: Tensor) -> Iterable[Sequence[float]]:
        columns = [_medians(tensor.flatten(1), group).tolist() for tensor in (weights, gradients)]
        return zip(*columns, strict=True)

    def _measure_by_sweeps(self, group: Group, group_layers: Sequence[Layer]) -> None:
        todo = [layer for layer in group_layers if layer.norms is None and not layer.excluded]
        for alike in alike_on_device(todo):
            pairs = [_median(tensor, group) for layer in alike for tensor in (layer.parameter, layer.gradient)]
            for layer, found in zip(alike, torch.stack(pairs).view(-1, 2).tolist(), strict=True):
                layer.norms = found

    def _ratio(self, group: Group, norms: Sequence[float], elements: int) -> float:
        weight, gradient = norms
        if group["maximize"] and group["median"] == "signed":
            gradient = -gradient
        return local_lr(
            weight, gradient, trust=group["trust_coefficient"], weight_decay=group["weight_decay"], eps=group["eps"]
        )


def _median(tensor: Tensor, group: Group) -> Tensor:
    if tensor.numel() == 0:
        return tensor.new_zeros((), dtype=accumulation_dtype(tensor.dtype))
    return _medians(tensor.reshape(1, -1), group)[0]


def _medians(rows: Tensor, group: Group) -> Tensor:
    values = rows.to(accumulation_dtype(rows.dtype))
    return (values.abs() if group["median"] == "absolute" else values).median(dim=1).values
