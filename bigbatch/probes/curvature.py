"""The radius of curvature of each layer, exact on sampled weights, beside its |w/g| estimate (Gao & Zhong 2020)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from bigbatch.probes.measurement import contract
from bigbatch.probes.measurement.contract import ProbeState, Row
from bigbatch.probes.measurement.objective import Hessian, Loss, Objective, sample_coordinates
from bigbatch.probes.measurement.probed_model import fixed_objective
from bigbatch.probes.measurement.read_only import Mode, preserve_model
from bigbatch.probes.measurement.record import Measurement, Record, to_json


class Config(contract.Config):
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


def measure(state: ProbeState, config: Config) -> Row:
    with preserve_model(state.model):
        row: Row = to_json(_measure_layers(fixed_objective(state, config.samples), config.coordinates, state.run.seed))
        return row


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
    layers: dict[str, dict[str, Any]] = {}
    for number, (name, parameter) in enumerate(objective.named.items()):
        places = sample_coordinates(parameter.numel(), coordinates, seed, number)
        second = hessian.diagonal_entries(number, places)
        described = _describe_tensor(parameter.detach(), hessian.gradient[number], places, second)
        layers[name] = {"kind": parameter_kind(name), **described}
    return CurvatureMeasurement(
        layers={name: TensorCurvature(**layer) for name, layer in layers.items()},
        weight=_median_of_kind(layers.values(), "weight"),
        bias=_median_of_kind(layers.values(), "bias"),
        coordinates=coordinates,
        **objective.conditions(),
    )


def parameter_kind(name: str) -> str:
    """`bias` by the name that torch's layers give it (bias, bias_ih_l0); all others are a `weight`."""
    return "bias" if name.rpartition(".")[2].startswith("bias") else "weight"


def _describe_tensor(weight: Tensor, gradient: Tensor, places: Tensor, second: Tensor) -> dict[str, Any]:
    slope = gradient.reshape(-1)[places.to(gradient.device)]
    radius = _median((1 + slope.double().square()).pow(1.5) / second.double().abs())
    trust_ratio = _median((weight / gradient).abs().reshape(-1))
    median_gradient = _median(gradient.abs().reshape(-1))
    return {
        "radius": radius,
        "trust_ratio": trust_ratio,
        "off_by": trust_ratio / radius if math.isfinite(radius) and radius else None,
        "median_ratio": _median(weight.abs().reshape(-1)) / median_gradient if median_gradient else None,
        "negative": float((second < 0).double().mean()),
        "measured": len(places),
    }


def _median(values: Tensor) -> float:
    """The median without NaN: a dead weight, 0/0, has no radius."""
    values = values[~values.isnan()]
    if not len(values):
        return math.nan
    ordered = values.double().sort().values
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return float(high) if torch.isinf(high) else float((low + high) / 2)


def _median_of_kind(layers: Iterable[dict[str, Any]], kind: str) -> MedianRadius | None:
    of_kind = [layer for layer in layers if layer["kind"] == kind]
    if not of_kind:
        return None
    return MedianRadius(
        *(
            _median(torch.tensor([layer[measure] for layer in of_kind], dtype=torch.float64))
            for measure in ("radius", "trust_ratio")
        )
    )
