"""The radius of curvature of each layer, exact on sampled weights, beside its |w/g| estimate (Gao & Zhong 2020)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from bigbatch import parts, probes, rng
from bigbatch.probes._contract import plain
from bigbatch.probes._data import fixed_objective
from bigbatch.probes._objective import COORDINATES, Hessian, Loss, Objective
from bigbatch.probes._untouched import Mode, untouched


class Config(probes.Config):
    """For ResNet-20 about 300 training steps of batch 128, in proportion to samples and coordinates."""

    every_steps: int = Field(5000, gt=0)
    samples: int = Field(32, gt=0)
    coordinates: int = Field(32, gt=0)  # weights sampled in each tensor, a Hessian-vector product each


def measure(state: probes.State, config: Config) -> dict[str, Any]:
    with untouched(state.model):
        return _by_layer(fixed_objective(state, config.samples), config.coordinates, state.run.seed)


def curvature(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    coordinates: int = 32,
    seed: int = 0,
    mode: Mode = None,
) -> dict[str, Any]:
    """For each tensor, and for weights and biases apart (Fig. 2):

    - `radius`: the median over sampled coordinates of eq. 9, R = (1 + g²)^(3/2) / |h|, with h = ∂²L/∂w² from exact
      Hessian-vector products (Hutchinson's estimate overstates median |h| up to 63 times); None where h is zero for
      most of them;
    - `negative`: the share of coordinates that curve downwards, which a radius does not tell;
    - `trust_ratio`: the median of eq. 17, |w/g|, over all coordinates. The paper takes it for R, but it assumes that
      the gradient vanishes at w = 0; `off_by` is trust_ratio / radius;
    - `median_ratio`: med|w| / med|g|, eq. 20 without its signs.
    """
    config = parts.configure("probes", {"name": "curvature", "coordinates": coordinates})
    assert isinstance(config, Config)
    with untouched(model, mode):
        return plain(_by_layer(Objective(model, loss, inputs, targets, seed=seed), config.coordinates, seed))


def _by_layer(objective: Objective, coordinates: int, seed: int) -> dict[str, Any]:
    hessian = Hessian(objective)
    layers = {}
    for number, (name, parameter) in enumerate(objective.named.items()):
        places = sampled(parameter.numel(), coordinates, seed, number)
        second = hessian.diagonal_at(number, places)
        layers[name] = {"kind": kind(name), **_described(parameter.detach(), hessian.gradient[number], places, second)}
    return {"layers": layers, **_apart(layers), **objective.about(), "coordinates": coordinates}


def sampled(size: int, wanted: int, *key: int) -> Tensor:
    """Places in a tensor: all where there are few, else drawn by key (at times fewer, since none is taken twice)."""
    if size <= wanted:
        return torch.arange(size)
    return torch.from_numpy(np.unique(rng.integers(size, *key, COORDINATES, np.arange(wanted))))


def kind(name: str) -> str:
    """Biases are told by their name, as torch's layers give it (bias, bias_ih_l0); the rest are weights."""
    return "bias" if name.rpartition(".")[2].startswith("bias") else "weight"


def _described(weight: Tensor, gradient: Tensor, places: Tensor, second: Tensor) -> dict[str, Any]:
    slope = gradient.reshape(-1)[places.to(gradient.device)]
    radius = median((1 + slope.double().square()).pow(1.5) / second.double().abs())
    trust_ratio = median((weight / gradient).abs().reshape(-1))
    return {
        "radius": radius,
        "trust_ratio": trust_ratio,
        "off_by": trust_ratio / radius if math.isfinite(radius) and radius else None,
        "median_ratio": _quotient(median(weight.abs().reshape(-1)), median(gradient.abs().reshape(-1))),
        "negative": float((second < 0).double().mean()),
        "measured": len(places),
    }


def median(values: Tensor) -> float:
    """The middle of what is a number: a dead weight, 0/0, has no radius."""
    values = values[~values.isnan()]
    if not len(values):
        return math.nan
    ordered = values.double().sort().values
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return float(high) if torch.isinf(high) else float((low + high) / 2)


def _quotient(a: float, b: float) -> float:
    return a / b if b else math.nan


def _apart(layers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The medians over layers of each kind."""
    apart = {}
    for one in ("weight", "bias"):
        of_kind = [layer for layer in layers.values() if layer["kind"] == one]
        if of_kind:
            apart[one] = {
                measure: median(torch.tensor([layer[measure] for layer in of_kind], dtype=torch.float64))
                for measure in ("radius", "trust_ratio")
            }
    return apart
