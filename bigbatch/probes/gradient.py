"""Mean |g| of a layer against batch size, with the 1/√n and folded-normal lines (Gao & Zhong 2020, Figs. 3 and 9)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import Parameter

from bigbatch import parts, probes, rng
from bigbatch.errors import Problem, did_you_mean
from bigbatch.probes._contract import plain
from bigbatch.probes._data import Subject, as_data
from bigbatch.probes._objective import (
    COORDINATES,
    DRAWS,
    Loss,
    differentiated,
    each_sample,
    require_finite,
    trainable,
    treatment,
)
from bigbatch.probes._untouched import Mode, untouched
from bigbatch.selectors import small_loss

SMALLEST_BATCH = 32
DISCARDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class Config(probes.Config):
    every_steps: int = Field(1000, gt=0)
    layer: str | None = None  # a parameter or a module; None: the first fully connected layer
    batches: tuple[int, ...] | None = None  # None: 32, 64 ... and the whole population
    # samples that batches are drawn from; None: 2048 in a training, all where the weights stand still
    population: int | None = Field(None, gt=1)
    draws: int = Field(32, gt=0)  # batches of each size
    # shares of small-loss samples to leave out
    discards: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = DISCARDS
    discard_batch: int | None = Field(None, gt=1)  # None: 1024 in a training, else the paper's 8192


def measure(state: probes.State, config: Config) -> dict[str, Any]:
    with untouched(state.model):
        return _measured(Subject.of_run(state), config, config.population or 2048, config.discard_batch or 1024)


def at_rest(state: probes.State, config: Config) -> dict[str, Any]:
    with untouched(state.model):
        return _measured(Subject.of_run(state), config, config.population, config.discard_batch or 8192)


def gradient(
    model: nn.Module,
    loss: Loss,
    data: Any,
    *,
    layer: str | None = None,
    batches: Sequence[int] | None = None,
    population: int | None = None,
    draws: int = 32,
    discards: Sequence[float] = DISCARDS,
    discard_batch: int = 8192,
    seed: int = 0,
    mode: Mode = None,
) -> dict[str, Any]:
    """How the mean of |g| over a layer falls with the batch n, where the weights are now.

    `data` is (inputs, targets) or a map-style Dataset, of which `population` samples stand for all, N. Each of
    `by_batch` has, beside `measured` ± `error`:

    - `printed`: the paper's eq. 4, 2σ/√π/√n, which is √2 too large;
    - `corrected`: σ√(2/π)/√n, the mean of |N(0, σ/√n)|;
    - `folded`: the mean of |N(G, σ²/n·(N−n)/(N−1))|, coordinate by coordinate: with the layer's own mean gradient G,
      and for batches drawn without replacement. At n = N only |G| is left.

    σ is the mean over coordinates of the per-sample standard deviation. `exponent` is the slope of log measured over
    log n, −1/2 where G is nothing. Batches are made of pieces of the smallest size, each differentiated once, so
    BatchNorm (in training mode) normalises over those.

    `by_discard` (Fig. 9) leaves out a share of small-loss samples of one batch: mean |g| divided by the `kept` and by
    `all` samples, and the `cosine` with the whole batch's gradient. It needs a loss that gives one number a sample;
    discards=() leaves it out.
    """
    options = {"layer": layer, "batches": batches, "draws": draws, "discards": discards}
    config = parts.configure("probes", {"name": "gradient", **options})
    assert isinstance(config, Config)
    with untouched(model, mode):
        return plain(_measured(Subject(model, loss, as_data(data), seed), config, population, discard_batch))


def _measured(subject: Subject, config: Config, population: int | None, discard_batch: int) -> dict[str, Any]:
    name, parameter = find_layer(subject.model, config.layer)
    total = len(subject.data)
    drawn_from = min(population or total, total)
    sizes = batch_sizes(config.batches, drawn_from)
    samples = subject.chosen(drawn_from // sizes[0] * sizes[0])
    piece_gradients = _piece_gradients(subject, samples.split(sizes[0]), parameter)
    found: dict[str, Any] = {
        "layer": name,
        "population": len(samples),
        "by_batch": [against_lines(piece_gradients, size, sizes[0], config.draws, subject.seed) for size in sizes],
    }
    found["exponent"] = _exponent(found["by_batch"], len(samples))
    if config.discards:
        found["discard_batch"] = max(1, min(discard_batch, total) // sizes[0]) * sizes[0]
        pieces = subject.chosen(found["discard_batch"]).split(sizes[0])
        found["by_discard"] = _by_discard(subject, pieces, parameter, config.discards)
    return {**found, **treatment(subject.model, sizes[0])}


# -- what to measure


def find_layer(model: nn.Module, layer: str | None) -> tuple[str, Parameter]:
    """The weight of a module or parameter; without a name that of the first fully connected layer, or the first."""
    named = trainable(model)
    if layer is not None:
        for name in (layer, f"{layer}.weight"):
            if name in named:
                return name, named[name]
        known = list(dict.fromkeys([*(name.removesuffix(".weight") for name in named), *named]))
        raise Problem(
            f"{type(model).__name__} has no trainable layer '{layer}'{did_you_mean(layer, known)} "
            f"Name a module or a parameter, like '{known[-1]}'"
        )
    linear = [f"{name}.weight".lstrip(".") for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    first = next(name for name in [*linear, *named] if name in named)
    return first, named[first]


def batch_sizes(asked: Sequence[int] | None, population: int) -> list[int]:
    """Multiples of the smallest, rising; the last one not above the population."""
    if asked is None:
        smallest = min(SMALLEST_BATCH, max(1, population // 4))
        doubled = [smallest * 2**power for power in range(int(math.log2(population / smallest)) + 1)]
        return sorted({*doubled, population // smallest * smallest})
    if not asked or min(asked) < 1:
        raise Problem(f"probe 'gradient' got the batches {list(asked)}: give numbers from 1 on, like 32 64 128")
    if max(asked) > population:
        raise Problem(
            f"probe 'gradient' cannot draw a batch of {max(asked)} from {population} samples: "
            f"ask for batches of at most {population}, or give it more data"
        )
    return sorted({size // min(asked) * min(asked) for size in asked})


# -- gradients


def _piece_gradients(subject: Subject, pieces: Sequence[Tensor], parameter: Parameter) -> Tensor:
    """[pieces, coordinates] in float64: the mean gradient of each piece, on at most 4096 coordinates of the layer."""
    places = _places(parameter, subject.seed)
    found = []
    for number, piece in enumerate(pieces):  # each with dropout masks of its own, as batches have
        (own,) = subject.objective(piece, number).gradient([parameter])
        found.append(own.reshape(-1)[places].double())
    return torch.stack(found)


def _places(parameter: Parameter, seed: int) -> Tensor:
    if parameter.numel() <= 4096:
        return torch.arange(parameter.numel(), device=parameter.device)
    drawn = np.unique(rng.integers(parameter.numel(), seed, COORDINATES, np.arange(4096)))
    return torch.from_numpy(drawn).to(parameter.device)


def against_lines(piece_gradients: Tensor, batch: int, piece: int, draws: int, seed: int) -> dict[str, Any]:
    """Mean |g| of batches made of whole pieces, drawn without replacement, beside what theory expects."""
    pieces = len(piece_gradients)
    population = pieces * piece
    mean = piece_gradients.mean(dim=0)
    # pieces are a random partition: their spread around the mean, with pieces − 1, is σ²/piece without bias
    spread = (
        piece_gradients.std(dim=0) * math.sqrt(piece) / _shrinkage(pieces) if pieces > 1 else torch.zeros_like(mean)
    )
    taken = batch // piece
    found = torch.stack(
        [piece_gradients[order[:taken]].mean(dim=0).abs().mean() for order in _orders(pieces, taken, draws, seed)]
    )
    sigma = float(spread.mean())
    left = (population - batch) / (population - 1) if population > 1 else 0.0
    return {
        "batch": batch,
        "measured": float(found.mean()),
        "error": float(found.std() / math.sqrt(len(found))) if len(found) > 1 else 0.0,
        "printed": 2 * sigma / math.sqrt(math.pi * batch),
        "corrected": sigma * math.sqrt(2 / math.pi / batch),
        "folded": float(folded_normal(mean, spread * math.sqrt(left / batch)).mean()),
    }


def _shrinkage(count: int) -> float:
    """c₄: by how much the standard deviation of so few normal numbers comes out too small in the mean."""
    return math.sqrt(2 / (count - 1)) * math.exp(math.lgamma(count / 2) - math.lgamma((count - 1) / 2))


def _orders(pieces: int, taken: int, draws: int, seed: int) -> list[Tensor]:
    """Disjoint batches as far as they go, then a new shuffle; the whole population is one batch."""
    if taken == pieces:
        return [torch.arange(pieces)]
    orders: list[Tensor] = []
    shuffle = 0
    while len(orders) < draws:
        orders += list(rng.permutation(pieces, seed, shuffle, DRAWS).split(taken))[: pieces // taken]
        shuffle += 1
    return orders[:draws]


def folded_normal(mean: Tensor, deviation: Tensor) -> Tensor:
    """E|x| of x ~ N(mean, deviation²): σ√(2/π)·exp(−μ²/2σ²) + μ·erf(μ/σ√2)."""
    safe = deviation.clamp_min(torch.finfo(deviation.dtype).tiny)
    spread = deviation * math.sqrt(2 / math.pi) * torch.exp(-0.5 * (mean / safe).square())
    return spread + mean * torch.erf(mean / safe / math.sqrt(2))


def _exponent(by_batch: list[dict[str, Any]], population: int) -> float:
    """Least squares over log n; the whole population is left out, since it is one batch and has no noise."""
    rows = [row for row in by_batch if row["measured"] > 0 and row["batch"] < population]
    if len(rows) < 2:
        return math.nan
    return float(np.polyfit(np.log([row["batch"] for row in rows]), np.log([row["measured"] for row in rows]), 1)[0])


# -- discarding small losses


def _by_discard(
    subject: Subject, pieces: Sequence[Tensor], parameter: Parameter, discards: Sequence[float]
) -> list[dict[str, Any]]:
    """One pass for the losses, then one in which each piece's backward runs once for every share."""
    losses = torch.cat([subject.objective(piece, number).per_sample() for number, piece in enumerate(pieces)])
    kept = [small_loss(losses, discard, divisor="all") for discard in (0.0, *discards)]
    sums = [torch.zeros_like(parameter, dtype=torch.float64) for _ in kept]
    start = 0
    for number, piece in enumerate(pieces):
        for piece_losses, size in subject.objective(piece, number).piece_losses():
            for weights, total in zip(kept, sums, strict=True):
                weighted = (each_sample(piece_losses, size) * weights[start : start + size]).sum()
                total.add_(differentiated(weighted, [parameter], retain_graph=True)[0])
            start += size
    require_finite(sums, "the gradient")
    whole = sums[0].reshape(-1)
    return [
        {
            "discard": discard,
            "kept": float(total.abs().mean() / weights.sum()),
            "all": float(total.abs().mean() / len(losses)),
            "cosine": float(torch.nn.functional.cosine_similarity(total.reshape(-1), whole, dim=0)),
        }
        for discard, weights, total in zip((0.0, *discards), kept, sums, strict=True)
    ]
