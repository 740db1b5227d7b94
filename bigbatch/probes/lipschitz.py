"""The curvature along the gradient, L(x, g) = gᵀHg / ‖g‖², with its sign (LEGW paper, section 4, Fig. 3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import PositiveFloat, PositiveInt
from torch import nn

from bigbatch.probes.measurement import contract
from bigbatch.probes.measurement.contract import ProbeState, Row, Unmeasurable, latest_row
from bigbatch.probes.measurement.objective import Hessian, Loss, Objective, Vector, dot, move_parameters, norm
from bigbatch.probes.measurement.probed_model import fixed_objective
from bigbatch.probes.measurement.read_only import Mode, preserve_model, preserve_tensors
from bigbatch.probes.measurement.record import Measurement, to_json


class Config(contract.Config):
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
    row["peak"] = find_peak([earlier["peak"], row] if earlier else [row], "exact" if config.exact else "finite")
    return row


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


def find_peak(rows: Iterable[Row], key: str = "exact") -> Row:
    """Where L(x, g) was largest: its value, step and epochs."""
    highest = max(rows, key=lambda row: row[key])
    return {name: highest[name] for name in (key, "step", "epochs")}


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
    return LipschitzMeasurement(
        exact=exact,
        finite=_finite_difference(objective, unit, distance),
        radius=distance,
        gradient_norm=length,
        **objective.conditions(),
    )


def _finite_difference(objective: Objective, unit: Vector, distance: float) -> float:
    """uᵀHu as (g(w + εu) − g(w − εu))·u / 2ε."""
    slopes = []
    with preserve_tensors(objective.parameters) as origin:
        for sign in (1, -1):
            move_parameters(objective.parameters, origin, unit, sign * distance)
            slopes.append(dot(objective.gradient(), unit))
    return (slopes[0] - slopes[1]) / (2 * distance)
