"""The curvature along the gradient, L(x, g) = gᵀHg / ‖g‖², with its sign (LEGW paper, section 4, Fig. 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import PositiveFloat, PositiveInt
from torch import nn

from bigbatch.probes.measurement.contract import ProbeConfig, ProbeState, Row, Unmeasurable, latest_row
from bigbatch.probes.measurement.objective import Hessian, Loss, Objective, dot, fixed_objective, move_parameters, norm
from bigbatch.probes.measurement.read_only import Mode, preserve_model, preserve_tensors
from bigbatch.probes.measurement.record import Measurement, to_json


class Config(ProbeConfig):
    """Gradient and Hessian are those of a small fixed batch, as in the paper."""

    samples: PositiveInt = 32
    radius: PositiveFloat = 1e-3  # of the finite difference, in units of ‖w‖
    exact: bool = True  # also by differentiating twice, at about twice the cost of the finite difference


@dataclass(frozen=True)
class LipschitzMeasurement(Measurement):
    exact: float | None
    finite: float
    radius: float
    gradient_norm: float
    samples: int


def measure(state: ProbeState, config: Config) -> Row:
    """`peak`: the largest value of the run so far, and where it was: a warm-up must last beyond it."""
    with preserve_model(state.model):
        row: Row = to_json(_measure_along_gradient(fixed_objective(state, config.samples), config))
    row |= {"step": state.position.step + 1, "epochs": state.position.epochs}
    earlier = latest_row(state.history, "lipschitz")
    value = "exact" if config.exact else "finite"
    highest = max([earlier["peak"], row] if earlier else [row], key=lambda found: found[value])
    return row | {"peak": {name: highest[name] for name in (value, "step", "epochs")}}


def lipschitz(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    radius: float = 1e-3,
    exact: bool = True,
    mode: Mode = None,
) -> LipschitzMeasurement:
    """gᵀHg / ‖g‖² on the given samples: the best learning rate along g is 1 over it, the largest stable one 2 over it.

    `finite` is the central difference of gradients over ± `radius`·‖w‖, which averages over the kinks of ReLU
    networks: smaller radii do not converge there. `exact` differentiates twice, at this point. Both keep the
    sign that the paper's norm hides. With dropout, both sides of the difference use the same masks.
    """
    config = Config.from_options(radius=radius, exact=exact)
    with preserve_model(model, mode):
        return _measure_along_gradient(Objective(model, loss, inputs, targets), config)


def _measure_along_gradient(objective: Objective, config: Config) -> LipschitzMeasurement:
    hessian = Hessian(objective) if config.exact else None
    gradient = hessian.gradient if hessian else objective.gradient()
    length = norm(gradient)
    if length == 0:
        raise Unmeasurable("the gradient is zero, so there is no direction to measure along: probe at other weights")
    unit = [part / length for part in gradient]
    distance = config.radius * norm([parameter.detach() for parameter in objective.parameters])
    exact = dot(unit, hessian.multiply(unit)) if hessian else None
    del hessian  # and with it the graph, which the moves below would invalidate
    slopes = []  # the difference is uᵀHu as (g(w + εu) − g(w − εu))·u / 2ε
    with preserve_tensors(objective.parameters) as origin:
        for sign in (1, -1):
            move_parameters(objective.parameters, origin, unit, sign * distance)
            slopes.append(dot(objective.gradient(), unit))
    finite = (slopes[0] - slopes[1]) / (2 * distance)
    return LipschitzMeasurement(
        exact=exact, finite=finite, radius=distance, gradient_norm=length, **objective.conditions()
    )
