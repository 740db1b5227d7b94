"""MCLR: a learning rate per layer from the medians of weights and gradients (Gao & Zhong 2020, eqs. 20-22)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor
from torch.optim.optimizer import ParamsT

from bigbatch import layers
from bigbatch.optim import builder_for
from bigbatch.optim.layerwise.base import Group, LayersByGroup, LayerTensors
from bigbatch.optim.layerwise.kernels import group_by_device_and_dtype
from bigbatch.optim.layerwise.momentum import LayerWiseMomentum
from bigbatch.optim.layerwise.norms import accumulation_dtype
from bigbatch.optim.layerwise.options import Momentum, config_from_constructor, constructor_options


def local_lr(weight: float, gradient: float, *, trust: float, weight_decay: float, eps: float) -> float:
    """η_g = γ·R_m of eqs. 20-22, R_m = |w_m / (g_m + βw_m)|, from two medians. A zero median gives 1."""
    divisor = abs(gradient + weight_decay * weight)
    if weight == 0 or gradient == 0 or divisor == 0:
        return 1.0
    return trust * abs(weight) / (divisor + eps)


class MedianCurvature(LayerWiseMomentum):
    """Median-curvature learning rate, eqs. 20-22: v ← m·v + lr·γ·R_m·(g + βw), R_m = |w_m / (g_m + βw_m)|.

        optimizer = MedianCurvature(model.parameters(), lr=0.1)
        loss(model(inputs), targets).backward()
        optimizer.step()

    `trust_coefficient` is γ; medians need about a third of LARS's.
    `median`: "absolute" takes w_m and g_m of absolute values; "signed" of the values themselves, as the paper can be
    read: both are then near zero and their quotient changes by orders of magnitude between steps.
    Of an even number of values the median is the lower of the two in the middle. A zero median gives a ratio of 1.
    Medians of shards do not add up: each rank gathers the full tensor of a sharded parameter, one layer at a time.
    `exclude`, `foreach`, `fused`: as in LARS; excluded tensors take `lr` as it is.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: NonNegativeFloat = 0.1,
        momentum: Momentum = 0.9,
        weight_decay: NonNegativeFloat = 0.0,
        trust_coefficient: PositiveFloat = 0.007,
        eps: NonNegativeFloat = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
        *,
        median: Literal["absolute", "signed"] = "absolute",
        exclude: layers.Rule = "one_dimensional",
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, constructor_options(locals()))

    def _compute_sharded_norms(self, collected: LayersByGroup) -> None:
        for group, group_layers in collected:
            for layer in group_layers:
                if layer.sharded and not layer.excluded:
                    full = layer.full_parameter.full_tensor(), layer.full_parameter.grad.full_tensor()
                    layer.norms = [median.item() for median in _medians(group, *full)]

    def _compute_norms(self, group: Group, layer: LayerTensors) -> Sequence[float]:
        return [median.item() for median in _medians(group, layer.parameter, layer.gradient)]

    def _compute_stacked_norms(self, group: Group, weights: Tensor, gradients: Tensor) -> Iterable[Sequence[float]]:
        count = len(weights)
        weight_medians, gradient_medians = _row_medians(group, weights.reshape(count, -1), gradients.reshape(count, -1))
        return zip(weight_medians.tolist(), gradient_medians.tolist(), strict=True)

    def _set_norms_by_foreach(self, group: Group, group_layers: Sequence[LayerTensors]) -> None:
        missing = [layer for layer in group_layers if layer.norms is None and not layer.excluded]
        for alike in group_by_device_and_dtype(missing):
            pairs = [median for layer in alike for median in _medians(group, layer.parameter, layer.gradient)]
            for layer, found in zip(alike, torch.stack(pairs).view(-1, 2).tolist(), strict=True):
                layer.norms = found

    def _trust_ratio(self, group: Group, norms: Sequence[float], elements: int) -> float:
        return local_lr(*norms, trust=group["trust_coefficient"], weight_decay=group["weight_decay"], eps=group["eps"])


def _medians(group: Group, weight: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return w_m and g_m of one layer."""
    if weight.numel() == 0:
        zero = weight.new_zeros((), dtype=accumulation_dtype(weight.dtype))
        return zero, zero
    weights, gradients = _row_medians(group, weight.reshape(1, -1), gradient.reshape(1, -1))
    return weights[0], gradients[0]


def _row_medians(group: Group, weights: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor]:
    """Return w_m and g_m of each row. Maximising descends −g, whose lower median is not that of g turned around."""
    gradients = -gradients if group["maximize"] else gradients
    weights, gradients = (rows.to(accumulation_dtype(rows.dtype)) for rows in (weights, gradients))
    if group["median"] == "absolute":
        weights, gradients = weights.abs(), gradients.abs()
    return weights.median(dim=1).values, gradients.median(dim=1).values


Config = config_from_constructor(MedianCurvature)
build = builder_for(MedianCurvature)
