"""The curvature along the gradient, L(x, g) = gᵀHg / ‖g‖², with its sign (LEGW paper, section 4, Fig. 3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from pydantic import Field
from torch import nn

from bigbatch import parts, probes
from bigbatch.probes._contract import last
from bigbatch.probes._data import fixed_objective
from bigbatch.probes._objective import Hessian, Loss, Objective, Vector, dot, norm
from bigbatch.probes._untouched import Mode, moved, untouched


class Config(probes.Config):
    """Gradient and Hessian are those of a small fixed batch, as in the paper."""

    samples: int = Field(32, gt=0)
    radius: float = Field(1e-3, gt=0)  # of the finite difference, in units of ‖w‖
    exact: bool = True  # also by differentiating twice, at about twice the cost of the finite difference


def measure(state: probes.State, config: Config) -> dict[str, Any]:
    """`peak`: the largest value of the run so far, and where it was: a warm-up has to last beyond it."""
    with untouched(state.model):
        found = _along_gradient(fixed_objective(state, config.samples), config)
    key = "exact" if config.exact else "finite"
    found["step"], found["epochs"] = state.position.step + 1, state.position.epochs
    earlier = last(state.history, "lipschitz")
    found["peak"] = peak([earlier["peak"], found] if earlier else [found], key)
    return found


def lipschitz(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    radius: float = 1e-3,
    exact: bool = True,
    mode: Mode = None,
) -> dict[str, Any]:
    """gᵀHg / ‖g‖² on the given samples; the best lr along g is its inverse, the largest stable one is 2 over it.

    `finite` is the central difference of gradients over ± `radius`·‖w‖, which averages over the kinks of ReLU
    networks: smaller radii do not converge there. `exact` differentiates twice, at this very point. Both keep the
    sign that the paper's norm hides. With dropout on, both sides of the difference see the same masks.
    """
    config = parts.configure("probes", {"name": "lipschitz", "radius": radius, "exact": exact})
    assert isinstance(config, Config)
    with untouched(model, mode):
        return _along_gradient(Objective(model, loss, inputs, targets), config)


def peak(rows: Iterable[dict[str, Any]], key: str = "exact") -> dict[str, Any]:
    """Where L(x, g) was largest: its value, step and epochs."""
    highest = max(rows, key=lambda row: row[key])
    return {name: highest[name] for name in (key, "step", "epochs")}


def _along_gradient(objective: Objective, config: Config) -> dict[str, Any]:
    hessian = Hessian(objective) if config.exact else None
    gradient = hessian.gradient if hessian else objective.gradient()
    length = norm(gradient)
    if length == 0:
        raise probes.Unmeasurable("the gradient is zero, so there is no direction to measure along: probe elsewhere")
    unit = [part / length for part in gradient]
    distance = config.radius * norm([parameter.detach() for parameter in objective.parameters])
    found = {"exact": dot(unit, hessian.times(unit)) if hessian else None}
    del hessian  # and with it the graph, which the moves below would invalidate
    found["finite"] = finite_curvature(objective, unit, distance)
    return {**found, "radius": distance, "gradient_norm": length, **objective.about()}


def finite_curvature(objective: Objective, unit: Vector, distance: float) -> float:
    """uᵀHu as (g(w + εu) − g(w − εu))·u / 2ε."""
    slopes = []
    with moved(objective.parameters) as origin:
        for sign in (1, -1):
            with torch.no_grad():
                for parameter, start, direction in zip(objective.parameters, origin, unit, strict=True):
                    torch.add(start, direction, alpha=sign * distance, out=parameter)
            slopes.append(dot(objective.gradient(), unit))
    return (slopes[0] - slopes[1]) / (2 * distance)
