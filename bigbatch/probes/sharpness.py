"""Top Hessian eigenvalues by warm-started Lanczos, trace, and SAM's sharpness (Foret et al. 2021), on fixed samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from bigbatch import rng
from bigbatch.probes.measurement.contract import ProbeConfig, ProbeState
from bigbatch.probes.measurement.objective import (
    DIRECTIONS,
    Hessian,
    Loss,
    Objective,
    fixed_objective,
    flatten,
    move_parameters,
    norm,
    unflatten,
)
from bigbatch.probes.measurement.read_only import Mode, preserve_model, preserve_tensors
from bigbatch.probes.measurement.record import Measurement


class Config(ProbeConfig):
    """For ResNet-20 about 60 training steps of batch 128 from a cold start, in proportion to samples and products."""

    every_steps: PositiveInt = 2000
    samples: PositiveInt = 64
    eigenvalues: PositiveInt = 3
    most_products: int = Field(40, gt=1)  # Hessian-vector products for the eigenvalues; as many vectors are held
    tolerance: PositiveFloat = 1e-3  # of an eigenvalue, relative to the largest
    trace_products: NonNegativeInt = 8
    sam_radius: PositiveFloat = 0.05


@dataclass(frozen=True)
class SharpnessMeasurement(Measurement):
    eigenvalues: list[float]
    residuals: list[float]
    smallest: float
    products: int
    converged: bool
    trace: float | None
    trace_error: float | None
    sam: float
    sam_radius: float
    samples: int


def measure(state: ProbeState, config: Config) -> SharpnessMeasurement:
    with preserve_model(state.model):
        start = state.probes.memory.get("sharpness")
        found, top = measure_sharpness(fixed_objective(state, config.samples), config, state.run.seed, start)
    state.probes.memory["sharpness"] = top
    return found


def sharpness(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, *, seed: int = 0, mode: Mode = None, **options: Any
) -> SharpnessMeasurement:
    """How the loss on the given samples curves. `options` are those of `Config`, such as eigenvalues=3.

    - `eigenvalues`: the largest ones of the Hessian, largest first, each with its `residuals` ‖Hv − λv‖;
      `smallest`: the lowest Ritz value, which the lowest eigenvalue is at most; `products` is the number of
      Hessian-vector products, `converged` whether they were enough for the largest.
    - `trace` ± `trace_error` (a standard error): exact on Lanczos' subspace, by random signs on the rest (Hutch++,
      Meyer et al. 2021); a single product has no `trace_error`.
    - `sam`: L(w + ρg/‖g‖) − L(w), the first-order worst rise within ρ = `sam_radius`.
    """
    config = Config.from_options(**options)
    with preserve_model(model, mode):
        return measure_sharpness(Objective(model, loss, inputs, targets, seed=seed), config, seed)[0]


@dataclass(frozen=True)
class Spectrum:
    """The state of Lanczos after some products: its orthonormal basis and the Hessian within it."""

    basis: Tensor  # [products, parameters]
    diagonal: list[float]
    values: Tensor  # all Ritz values, largest first
    vectors: Tensor  # [products, products], in the basis, a column each
    residuals: Tensor
    converged: bool  # whether the residuals of the wanted values are within the tolerance


def measure_sharpness(
    objective: Objective, config: Config, seed: int, start: Tensor | None = None
) -> tuple[SharpnessMeasurement, Tensor]:
    """The measurement, and the vector to start from next time."""
    hessian = Hessian(objective)
    first = _random_signs(objective, seed, 0)
    wanted = min(config.eigenvalues, len(first))
    if start is not None:  # with a small random part: an eigenvector alone would span nothing new
        first = start + 0.05 * first / first.norm()
    spectrum = run_lanczos(hessian, first, wanted, config)
    trace, trace_error = _estimate_trace(hessian, spectrum, config.trace_products, objective, seed)
    top = spectrum.vectors[:, :wanted].sum(dim=1).to(spectrum.basis.dtype) @ spectrum.basis
    gradient = hessian.gradient
    del hessian  # and with it the graph, which the move below would invalidate
    sam, length = 0.0, norm(gradient)
    if length > 0:
        before = objective.value()
        with preserve_tensors(objective.parameters) as origin:
            move_parameters(objective.parameters, origin, gradient, config.sam_radius / length)
            sam = objective.value() - before
    found = SharpnessMeasurement(
        eigenvalues=spectrum.values[:wanted].tolist(),
        residuals=spectrum.residuals[:wanted].tolist(),
        smallest=float(spectrum.values[-1]),
        products=len(spectrum.diagonal),
        converged=spectrum.converged,
        trace=trace,
        trace_error=trace_error,
        sam=sam,
        sam_radius=config.sam_radius,
        **objective.conditions(),
    )
    return found, top


def run_lanczos(hessian: Hessian, start: Tensor, wanted: int, config: Config) -> Spectrum:
    """The top of the spectrum from H·v alone, each new vector made orthogonal to all before it, twice: in floating
    point one pass lets converged eigenvalues come back as ghosts."""
    products = min(config.most_products, len(start))
    basis = start.new_zeros(products, len(start))
    basis[0] = start / start.norm()
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    while True:
        number = len(diagonal)
        new = flatten(hessian.multiply(unflatten(basis[number], hessian.parameters)))
        diagonal.append(float(torch.dot(basis[number], new)))
        for _ in range(2):
            new = new - (basis[: number + 1] @ new) @ basis[: number + 1]
        length = float(new.norm())
        off = torch.tensor(off_diagonal, dtype=torch.float64)
        matrix = torch.diag(torch.tensor(diagonal, dtype=torch.float64)) + torch.diag(off, 1) + torch.diag(off, -1)
        values, vectors = torch.linalg.eigh(matrix)
        residuals, scale = length * vectors[-1].abs().flip(0), float(values.abs().max())
        converged = bool((residuals[:wanted] <= config.tolerance * scale).all())
        exhausted = length <= 1e3 * torch.finfo(start.dtype).eps * max(scale, 1e-30)
        if number + 1 == products or exhausted or (number + 1 >= wanted and converged):
            vectors = vectors.flip(1).to(basis.device)
            return Spectrum(basis[: number + 1], diagonal, values.flip(0), vectors, residuals, converged)
        off_diagonal.append(length)
        basis[number + 1] = new / length


def _estimate_trace(
    hessian: Hessian, spectrum: Spectrum, products: int, objective: Objective, seed: int
) -> tuple[float, float | None]:
    """tr QᵀHQ + tr (1−QQᵀ)H(1−QQᵀ), the second part from random signs."""
    within = math.fsum(spectrum.diagonal)
    if len(spectrum.diagonal) == spectrum.basis.shape[1]:
        return within, 0.0
    if products == 0:
        return math.nan, None
    quotients = []
    for number in range(products):
        signs = _random_signs(objective, seed, 1 + number)
        rest = signs - (spectrum.basis @ signs) @ spectrum.basis
        quotients.append(float(torch.dot(rest, flatten(hessian.multiply(unflatten(rest, hessian.parameters))))))
    found = torch.tensor(quotients, dtype=torch.float64)
    error = float(found.std() / math.sqrt(products)) if products > 1 else None
    return within + float(found.mean()), error


def _random_signs(objective: Objective, *key: int) -> Tensor:
    """A random sign for every weight, from a separate generator."""
    generator = torch.Generator().manual_seed(int(rng.bits(*key, DIRECTIONS)[0] >> 1))
    parameter = objective.parameters[0]
    size = sum(parameter.numel() for parameter in objective.parameters)
    return (torch.randint(0, 2, (size,), generator=generator) * 2 - 1).to(parameter.device, parameter.dtype)
