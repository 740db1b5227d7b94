"""Top Hessian eigenvalues by warm-started Lanczos, trace, and SAM's sharpness (Foret et al. 2021), on fixed samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from bigbatch import parts, probes, rng
from bigbatch.probes._contract import plain
from bigbatch.probes._data import fixed_objective
from bigbatch.probes._objective import DIRECTIONS, Hessian, Loss, Objective, flat, norm, shaped
from bigbatch.probes._untouched import Mode, moved, untouched


class Config(probes.Config):
    """For ResNet-20 about 60 training steps of batch 128 from a cold start, in proportion to samples and products."""

    every_steps: int = Field(2000, gt=0)
    samples: int = Field(64, gt=0)
    eigenvalues: int = Field(3, gt=0)
    most_products: int = Field(40, gt=1)  # Hessian-vector products for the eigenvalues; as many vectors are held
    tolerance: float = Field(1e-3, gt=0)  # of an eigenvalue, relative to the largest
    trace_products: int = Field(8, ge=0)
    sam_radius: float = Field(0.05, gt=0)


def measure(state: probes.State, config: Config) -> dict[str, Any]:
    with untouched(state.model):
        start = state.probes.memory.get("sharpness")
        found, top = _measured(fixed_objective(state, config.samples), config, state.run.seed, start)
    state.probes.memory["sharpness"] = top
    return found


def sharpness(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    eigenvalues: int = 3,
    most_products: int = 40,
    tolerance: float = 1e-3,
    trace_products: int = 8,
    sam_radius: float = 0.05,
    seed: int = 0,
    mode: Mode = None,
) -> dict[str, Any]:
    """How the loss on the given samples curves.

    - `eigenvalues`: the largest ones of the Hessian, largest first, each with its `residuals` ‖Hv − λv‖;
      `smallest`: the lowest value met on the way, which the lowest eigenvalue is at most; `products` says how many
      Hessian-vector products it took, `converged` whether they were enough for the largest.
    - `trace` ± `trace_error` (a standard error): exact on Lanczos' subspace, by random signs on the rest (Hutch++,
      Meyer et al. 2021); a `trace_error` of None says that one product has none.
    - `sam`: L(w + ρg/‖g‖) − L(w), the first-order worst rise within ρ = `sam_radius`.
    """
    options = {
        "eigenvalues": eigenvalues,
        "most_products": most_products,
        "tolerance": tolerance,
        "trace_products": trace_products,
        "sam_radius": sam_radius,
    }
    config = parts.configure("probes", {"name": "sharpness", **options})
    assert isinstance(config, Config)
    with untouched(model, mode):
        found, _ = _measured(Objective(model, loss, inputs, targets, seed=seed), config, seed)
    return plain(found)


@dataclass(frozen=True)
class Spectrum:
    """What Lanczos knows after some products: its orthonormal basis and the Hessian within it."""

    basis: Tensor  # [products, parameters]
    diagonal: list[float]
    values: Tensor  # all Ritz values, largest first
    vectors: Tensor  # [products, products], in the basis, a column each
    residuals: Tensor


def _measured(
    objective: Objective, config: Config, seed: int, start: Tensor | None = None
) -> tuple[dict[str, Any], Tensor]:
    """What there is to say, and the vector to start from next time."""
    hessian = Hessian(objective)
    size = sum(parameter.numel() for parameter in objective.parameters)
    wanted = min(config.eigenvalues, size)
    first = _signs(objective, seed, 0)
    if start is not None:  # a little of everything is kept: an eigenvector alone would span nothing new
        first = start + 0.05 * first / first.norm()
    spectrum = lanczos(hessian, first, wanted, config.most_products, config.tolerance)
    trace, error = _trace(hessian, spectrum, config.trace_products, objective, seed)
    top = spectrum.vectors[:, :wanted].sum(dim=1).to(spectrum.basis.dtype) @ spectrum.basis
    residuals = spectrum.residuals[:wanted]
    scale = float(spectrum.values.abs().max())
    found = {
        "eigenvalues": spectrum.values[:wanted].tolist(),
        "residuals": residuals.tolist(),
        "smallest": float(spectrum.values[-1]),
        "products": len(spectrum.diagonal),
        "converged": bool((residuals <= config.tolerance * scale).all()),
        "trace": trace,
        "trace_error": error,
    }
    gradient = hessian.gradient
    del hessian
    return {**found, **_sam(objective, gradient, config.sam_radius), **objective.about()}, top


def lanczos(hessian: Hessian, start: Tensor, wanted: int, most_products: int, tolerance: float) -> Spectrum:
    """The top of the spectrum from H·v alone, each new vector made orthogonal to all before it, twice: in floating
    point one pass lets converged eigenvalues come back as ghosts."""
    products = min(most_products, len(start))
    basis = start.new_zeros(products, len(start))
    basis[0] = start / start.norm()
    diagonal: list[float] = []
    beside: list[float] = []
    while True:
        number = len(diagonal)
        new = flat(hessian.times(shaped(basis[number], hessian.parameters)))
        diagonal.append(float(torch.dot(basis[number], new)))
        for _ in range(2):
            new = new - (basis[: number + 1] @ new) @ basis[: number + 1]
        length = float(new.norm())
        spectrum = _ritz(basis[: number + 1], diagonal, beside, length)
        scale = float(spectrum.values.abs().max())
        exhausted = length <= 1e3 * torch.finfo(start.dtype).eps * max(scale, 1e-30)
        enough = number + 1 >= wanted and bool((spectrum.residuals[:wanted] <= tolerance * scale).all())
        if number + 1 == products or exhausted or enough:
            return spectrum
        beside.append(length)
        basis[number + 1] = new / length


def _ritz(basis: Tensor, diagonal: list[float], beside: list[float], length: float) -> Spectrum:
    matrix = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if beside:
        off = torch.tensor(beside, dtype=torch.float64)
        matrix += torch.diag(off, 1) + torch.diag(off, -1)
    values, vectors = torch.linalg.eigh(matrix)
    values, vectors = values.flip(0), vectors.flip(1)
    return Spectrum(basis, list(diagonal), values, vectors.to(basis.device), length * vectors[-1].abs())


def _trace(
    hessian: Hessian, spectrum: Spectrum, products: int, objective: Objective, seed: int
) -> tuple[float, float | None]:
    """tr QᵀHQ + tr (1−QQᵀ)H(1−QQᵀ), the second part from random signs."""
    within = math.fsum(spectrum.diagonal)
    size = spectrum.basis.shape[1]
    if len(spectrum.diagonal) == size:
        return within, 0.0
    if products == 0:
        return math.nan, None
    quotients = []
    for number in range(products):
        signs = _signs(objective, seed, 1 + number)
        rest = signs - (spectrum.basis @ signs) @ spectrum.basis
        quotients.append(float(torch.dot(rest, flat(hessian.times(shaped(rest, hessian.parameters))))))
    found = torch.tensor(quotients, dtype=torch.float64)
    error = float(found.std() / math.sqrt(products)) if products > 1 else None
    return within + float(found.mean()), error


def _signs(objective: Objective, *key: int) -> Tensor:
    """A random sign for every parameter, from a generator of its own."""
    generator = torch.Generator().manual_seed(int(rng.bits(*key, DIRECTIONS)[0] >> 1))
    parameter = objective.parameters[0]
    size = sum(parameter.numel() for parameter in objective.parameters)
    return (torch.randint(0, 2, (size,), generator=generator) * 2 - 1).to(parameter.device, parameter.dtype)


def _sam(objective: Objective, gradient: list[Tensor], radius: float) -> dict[str, Any]:
    length = norm(gradient)
    if length == 0:
        return {"sam": 0.0, "sam_radius": radius}
    before = objective.value()
    with moved(objective.parameters) as origin:
        with torch.no_grad():
            for parameter, start, slope in zip(objective.parameters, origin, gradient, strict=True):
                torch.add(start, slope, alpha=radius / length, out=parameter)
        after = objective.value()
    return {"sam": after - before, "sam_radius": radius}
