"""The radius of curvature of each layer, exact on sampled weights, beside its |w/g| estimate (Gao & Zhong 2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from bigbatch.probes.measurement.contract import ProbeConfig, ProbeState
from bigbatch.probes.measurement.objective import Hessian, Loss, Objective, fixed_objective, sample_coordinates
from bigbatch.probes.measurement.read_only import Mode, preserve_model
from bigbatch.probes.measurement.record import Measurement, Record


class Config(ProbeConfig):
    """For ResNet-20 about 300 training steps of batch 128, in proportion to samples and coordinates."""

    every_steps: PositiveInt = 5000
    samples: PositiveInt = 32
    coordinates: PositiveInt = 32  # weights sampled in each tensor, a Hessian-vector product each


@dataclass(frozen=True)
class TensorCurvature(Record):
    """The curvature of the loss along the coordinates of one tensor."""

    kind: str  # weight or bias
    radius: float | None  # None where the curvature is zero for most coordinates
    trust_ratio: float | None
    off_by: float | None  # trust_ratio / radius
    median_ratio: float | None
    negative: float
    measured: int  # coordinates


@dataclass(frozen=True)
class MedianRadius(Record):
    """The medians over all tensors of one kind."""

    radius: float | None
    trust_ratio: float | None


@dataclass(frozen=True)
class CurvatureMeasurement(Measurement):
    OMIT_IF_NONE = (*Measurement.OMIT_IF_NONE, "weight", "bias")

    layers: dict[str, TensorCurvature]
    weight: MedianRadius | None
    bias: MedianRadius | None
    samples: int
    coordinates: int


def measure(state: ProbeState, config: Config) -> CurvatureMeasurement:
    with preserve_model(state.model):
        return _measure_layers(fixed_objective(state, config.samples), config.coordinates, state.run.seed)


def curvature(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    coordinates: int = 32,
    seed: int = 0,
    mode: Mode = None,
) -> CurvatureMeasurement:
    """For each tensor, and for weights and biases separately (Fig. 2):

    - `radius`: the median over sampled coordinates of eq. 9, R = (1 + g²)^(3/2) / |h|, with h = ∂²L/∂w² from exact
      Hessian-vector products (Hutchinson's estimate overstates median |h| up to 63 times); None where h is zero for
      most of them;
    - `negative`: the fraction of coordinates with negative curvature, which a radius does not show;
    - `trust_ratio`: the median of eq. 17, |w/g|, over all coordinates. The paper takes it for R, but it assumes that
      the gradient vanishes at w = 0; `off_by` is trust_ratio / radius;
    - `median_ratio`: med|w| / med|g|, eq. 20 without its signs.
    """
    config = Config.from_options(coordinates=coordinates)
    with preserve_model(model, mode):
        return _measure_layers(Objective(model, loss, inputs, targets, seed=seed), config.coordinates, seed)


def _measure_layers(objective: Objective, coordinates: int, seed: int) -> CurvatureMeasurement:
    hessian = Hessian(objective)
    layers: dict[str, TensorCurvature] = {}
    medians: dict[str, list[tuple[float, float]]] = {"weight": [], "bias": []}  # radius and trust ratio of each tensor
    for number, (name, parameter) in enumerate(objective.named.items()):
        weight, gradient = parameter.detach(), hessian.gradient[number]
        places = sample_coordinates(parameter.numel(), coordinates, seed, number)
        second = hessian.diagonal_entries(number, places)
        slope = gradient.reshape(-1)[places.to(gradient.device)]
        radius = _median((1 + slope.double().square()).pow(1.5) / second.double().abs())
        trust_ratio = _median((weight / gradient).abs())
        median_gradient = _median(gradient.abs())
        # torch's layers name it bias or bias_ih_l0
        kind = "bias" if name.rpartition(".")[2].startswith("bias") else "weight"
        medians[kind].append((radius, trust_ratio))
        layers[name] = TensorCurvature(
            kind=kind,
            radius=radius,
            trust_ratio=trust_ratio,
            off_by=trust_ratio / radius if math.isfinite(radius) and radius else None,
            median_ratio=_median(weight.abs()) / median_gradient if median_gradient else None,
            negative=float((second < 0).double().mean()),
            measured=len(places),
        )
    by_kind: dict[str, Any] = {
        kind: MedianRadius(*map(_median, zip(*found, strict=True))) if found else None
        for kind, found in medians.items()
    }
    return CurvatureMeasurement(layers=layers, coordinates=coordinates, **by_kind, **objective.conditions())


def _median(numbers: Tensor | Sequence[float]) -> float:
    """The median without NaN: a dead weight, 0/0, has no radius."""
    values = torch.as_tensor(numbers, dtype=torch.float64)
    values = values[~values.isnan()]
    return float(np.median(values.cpu().numpy())) if len(values) else math.nan
