"""Mean |g| of a layer against batch size, with the 1/√n and folded-normal lines (Gao & Zhong 2020, Figs. 3 and 9)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import Parameter

from bigbatch import rng
from bigbatch.errors import Problem, did_you_mean
from bigbatch.probes.measurement.contract import ProbeConfig, ProbeState
from bigbatch.probes.measurement.objective import (
    DRAWS,
    Loss,
    ProbedModel,
    describe_mode,
    differentiate,
    require_finite,
    sample_coordinates,
    trainable_parameters,
)
from bigbatch.probes.measurement.read_only import Mode, preserve_model
from bigbatch.probes.measurement.record import Measurement, Record
from bigbatch.probes.measurement.samples import index_samples
from bigbatch.selectors import small_loss

_SMALLEST_BATCH = 32
_MOST_COORDINATES = 4096


class Config(ProbeConfig):
    every_steps: PositiveInt = 1000
    layer: str | None = None  # a parameter or a module; None: the first fully connected layer
    batches: tuple[int, ...] | None = None  # None: 32, 64 ... and the whole population
    # samples that batches are drawn from; None: 2048 during training, all where the weights do not change
    population: int | None = Field(None, gt=1)
    draws: PositiveInt = 32  # batches of each size
    # fractions of small-loss samples to leave out
    discards: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    discard_batch: int | None = Field(None, gt=1)  # None: 1024 during training, else the paper's 8192


@dataclass(frozen=True)
class BatchGradient(Record):
    """Mean |g| of batches of one size, and what theory expects."""

    batch: int
    measured: float
    error: float
    printed: float
    corrected: float
    folded: float


@dataclass(frozen=True)
class DiscardGradient(Record):
    """Mean |g| of a batch without a fraction of its small-loss samples."""

    discard: float
    kept: float
    all: float
    cosine: float


@dataclass(frozen=True)
class GradientMeasurement(Measurement):
    OMIT_IF_NONE = (*Measurement.OMIT_IF_NONE, "discard_batch", "by_discard")

    layer: str
    population: int
    by_batch: list[BatchGradient]
    exponent: float | None
    discard_batch: int | None
    by_discard: list[DiscardGradient] | None


def measure(state: ProbeState, config: Config) -> GradientMeasurement:
    smaller = {"population": config.population or 2048, "discard_batch": config.discard_batch or 1024}
    return measure_at_rest(state, config.model_copy(update=smaller))


def measure_at_rest(state: ProbeState, config: Config) -> GradientMeasurement:
    with preserve_model(state.model):
        return _measure_gradients(ProbedModel.of_run(state), config)


def gradient(
    model: nn.Module, loss: Loss, data: Any, *, seed: int = 0, mode: Mode = None, **options: Any
) -> GradientMeasurement:
    """How the mean of |g| over a layer falls with the batch n, at the present weights.

    `data` is (inputs, targets) or a map-style Dataset; `options` are those of `Config`: layer, batches, population,
    draws, discards, discard_batch. `population` samples stand for all, N. Each of `by_batch` has, beside
    `measured` ± `error`:

    - `printed`: the paper's eq. 4, 2σ/√π/√n, which is √2 too large;
    - `corrected`: σ√(2/π)/√n, the mean of |N(0, σ/√n)|;
    - `folded`: the mean of |N(G, σ²/n·(N−n)/(N−1))|, coordinate by coordinate: with the layer's own mean gradient G,
      and for batches drawn without replacement. At n = N only |G| is left.

    σ is the mean over coordinates of the per-sample standard deviation. `exponent` is the slope of log measured over
    log n, −1/2 where G is zero. Batches consist of micro-batches of the smallest size, each differentiated once, so
    BatchNorm (in training mode) normalises over those.

    `by_discard` (Fig. 9) leaves out a fraction of the small-loss samples of one batch: mean |g| divided by the `kept`
    and by `all` samples, and the `cosine` with the whole batch's gradient. It needs a loss that returns one number per
    sample; discards=() leaves it out.
    """
    config = Config.from_options(**options)
    with preserve_model(model, mode):
        return _measure_gradients(ProbedModel(model, loss, index_samples(data), seed), config)


def _measure_gradients(probed: ProbedModel, config: Config) -> GradientMeasurement:
    name, parameter = find_layer(probed.model, config.layer)
    total = len(probed.samples)
    population = min(config.population or total, total)
    sizes = choose_batches(config.batches, population)
    smallest = sizes[0]
    indices = probed.fixed_indices(population // smallest * smallest)
    # each micro-batch's mean gradient in float64, with its own dropout masks as batches have
    places = sample_coordinates(parameter.numel(), _MOST_COORDINATES, probed.seed).to(parameter.device)
    own = (probed.objective(part, n).gradient([parameter])[0] for n, part in enumerate(indices.split(smallest)))
    gradients = torch.stack([gradient.reshape(-1)[places].double() for gradient in own])
    by_batch = [_compare_with_theory(gradients, size, smallest, config.draws, probed.seed) for size in sizes]
    # least squares over log n, without the whole population, which is one batch and has no noise
    noisy = [row for row in by_batch if row.measured > 0 and row.batch < len(indices)]
    logs = np.log([(row.batch, row.measured) for row in noisy]) if len(noisy) > 1 else None
    exponent = None if logs is None else float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    discard_batch = by_discard = None
    if config.discards:
        discard_batch = max(1, min(config.discard_batch or 8192, total) // smallest) * smallest
        micro_batches = probed.fixed_indices(discard_batch).split(smallest)
        by_discard = _discard_small_losses(probed, micro_batches, parameter, config.discards)
    return GradientMeasurement(
        layer=name,
        population=len(indices),
        by_batch=by_batch,
        exponent=exponent,
        discard_batch=discard_batch,
        by_discard=by_discard,
        **describe_mode(probed.model, smallest),
    )


# -- what to measure


def find_layer(model: nn.Module, layer: str | None) -> tuple[str, Parameter]:
    """The weight of a module or parameter; without a name that of the first fully connected layer, or the first."""
    named = trainable_parameters(model)
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


def choose_batches(batches: Sequence[int] | None, population: int) -> list[int]:
    """Increasing multiples of the smallest; the last one is not above the population."""
    if batches is None:
        smallest = min(_SMALLEST_BATCH, max(1, population // 4))
        doubled = [smallest * 2**power for power in range(int(math.log2(population / smallest)) + 1)]
        return sorted({*doubled, population // smallest * smallest})
    if not batches or min(batches) < 1:
        raise Problem(f"probe 'gradient' got the batches {list(batches)}: give numbers of at least 1, like 32 64 128")
    if max(batches) > population:
        raise Problem(
            f"probe 'gradient' cannot draw a batch of {max(batches)} from {population} samples: "
            f"use batches of at most {population}, or give it more data"
        )
    return sorted({size // min(batches) * min(batches) for size in batches})


# -- gradients


def _compare_with_theory(gradients: Tensor, batch: int, micro_batch: int, draws: int, seed: int) -> BatchGradient:
    """Mean |g| of batches of whole micro-batches, drawn without replacement, beside what theory expects."""
    count, taken = len(gradients), batch // micro_batch
    population = count * micro_batch
    mean = gradients.mean(dim=0)
    spread = torch.zeros_like(mean)
    if count > 1:
        # c₄: the factor by which the standard deviation of so few normal numbers is too small on average
        c4 = math.sqrt(2 / (count - 1)) * math.exp(math.lgamma(count / 2) - math.lgamma((count - 1) / 2))
        # micro-batches are a random partition: their variance around the mean, with count − 1, is σ²/n without bias
        spread = gradients.std(dim=0) * math.sqrt(micro_batch) / c4
    orders = [torch.arange(count)] if taken == count else []  # the whole population is one batch
    shuffle = 0
    while (
        taken < count and len(orders) < draws
    ):  # disjoint batches until all micro-batches are used, then a new shuffle
        orders += list(rng.permutation(count, seed, shuffle, DRAWS).split(taken))[: count // taken]
        shuffle += 1
    found = torch.stack([gradients[order].mean(dim=0).abs().mean() for order in orders[:draws]])
    sigma = float(spread.mean())
    left = (population - batch) / (population - 1) if population > 1 else 0.0
    return BatchGradient(
        batch=batch,
        measured=float(found.mean()),
        error=float(found.std() / math.sqrt(len(found))) if len(found) > 1 else 0.0,
        printed=2 * sigma / math.sqrt(math.pi * batch),
        corrected=sigma * math.sqrt(2 / math.pi / batch),
        folded=float(folded_normal(mean, spread * math.sqrt(left / batch)).mean()),
    )


def folded_normal(mean: Tensor, deviation: Tensor) -> Tensor:
    """E|x| of x ~ N(mean, deviation²): σ√(2/π)·exp(−μ²/2σ²) + μ·erf(μ/σ√2)."""
    safe = deviation.clamp_min(torch.finfo(deviation.dtype).tiny)
    spread = deviation * math.sqrt(2 / math.pi) * torch.exp(-0.5 * (mean / safe).square())
    return spread + mean * torch.erf(mean / safe / math.sqrt(2))


# -- discarding small losses


def _discard_small_losses(
    probed: ProbedModel, micro_batches: Sequence[Tensor], parameter: Parameter, discards: Sequence[float]
) -> list[DiscardGradient]:
    """One pass for the losses, then one in which each micro-batch's backward pass runs once per fraction."""

    def compute_losses(number: int) -> Tensor:
        ((losses, size),) = probed.objective(micro_batches[number], number).micro_batch_losses()
        if losses.shape != (size,):
            raise Problem(
                f"the loss has shape {tuple(losses.shape)} for {size} samples, but this probe needs each sample's own: "
                f"return one loss per sample, as reduction='none' does"
            )
        return losses

    with torch.no_grad():
        losses = torch.cat([compute_losses(number) for number in range(len(micro_batches))])
    kept = [small_loss(losses, discard, divisor="all") for discard in (0.0, *discards)]
    sums = [torch.zeros_like(parameter, dtype=torch.float64) for _ in kept]
    start = 0
    for number, indices in enumerate(micro_batches):
        own_losses = compute_losses(number)
        for weights, total in zip(kept, sums, strict=True):
            weighted = (own_losses * weights[start : start + len(indices)]).sum()
            total.add_(differentiate(weighted, [parameter], retain_graph=True)[0])
        start += len(indices)
    require_finite(sums, "the gradient")
    whole = sums[0].reshape(-1)
    return [
        DiscardGradient(
            discard=discard,
            kept=float(total.abs().mean() / weights.sum()),
            all=float(total.abs().mean() / len(losses)),
            cosine=float(torch.nn.functional.cosine_similarity(total.reshape(-1), whole, dim=0)),
        )
        for discard, weights, total in zip((0.0, *discards), kept, sums, strict=True)
    ]
