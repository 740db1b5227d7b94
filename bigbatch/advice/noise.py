"""The noise scale at a learner's present weights, from batches that grow until it is known or time is up."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bigbatch.advice.goodput import LEVEL, Floats
from bigbatch.advice.learner import Learner
from bigbatch.errors import Problem
from bigbatch.probes.measurement.read_only import preserve_model
from bigbatch.probes.noise_scale import (
    Interval,
    TensorNoise,
    bootstrap_noise_scales,
    noise_by_tensor,
    noise_to_signal,
    quantile_interval,
    sample_noise_and_signal,
)

_BATCHES, _FEW_BATCHES = 16, 8
_SMALLEST_BATCH = 64
_MICRO_BATCHES = 8  # per batch, where BatchNorm does not set their size
_TIGHT = 1.5  # upper over lower end: enough, since B* grows with the square root


@dataclass(frozen=True)
class NoiseSample:
    """trΣ and |G|² of some batches, and the noise scale that follows."""

    noise: list[float]  # of each batch
    signal: list[float]
    layers: dict[str, TensorNoise]
    batch: int
    micro_batch: int

    @cached_property
    def draws(self) -> Floats:
        return bootstrap_noise_scales(self.noise, self.signal)

    @property
    def interval(self) -> Interval:
        return quantile_interval(self.draws, LEVEL)

    @property
    def only_lower_bound(self) -> bool:
        """The signal's lower end is not positive: the batches were too small to separate it from the noise."""
        return self.interval[1] is None

    @property
    def estimate(self) -> float | None:
        """trΣ/|G|² of the means, never a mean of quotients; None where the mean signal is not positive."""
        return noise_to_signal(float(np.mean(self.noise)), float(np.mean(self.signal)))

    @property
    def best_known(self) -> float:
        """The estimate, or the lower end where only that is known."""
        low = self.interval[0]
        if self.only_lower_bound or self.estimate is None:
            # a batch shows little of a noise scale beyond twice its size, so the batch itself is a safe lower bound
            return float(self.batch) if low is None else low
        return self.estimate


def sample_noise_quickly(learner: Learner) -> NoiseSample:
    """From few batches, for a point of the curve over training."""
    return _sample_noise(learner, *_choose_sizes(learner, growth=1), _FEW_BATCHES)


def count_quick_samples(learner: Learner) -> int:
    """The number of samples that `sample_noise_quickly` takes."""
    return _FEW_BATCHES * _choose_sizes(learner, growth=1)[0]


def sample_noise(learner: Learner, seconds: float) -> NoiseSample:
    """Larger and larger batches, until the interval is tight, half the data is in a batch, or the next round would
    take longer than there is time."""
    started = time.perf_counter()
    growth = 1
    while True:
        batch, micro_batch = _choose_sizes(learner, growth)
        round_started = time.perf_counter()
        found = _sample_noise(learner, batch, micro_batch, _BATCHES)
        now = time.perf_counter()
        low, high = found.interval
        if low is not None and high is not None and high <= _TIGHT * low:
            return found
        affordable = (seconds - (now - started)) / (now - round_started)  # rounds like this one
        factor = min(4, int(affordable))
        if factor < 2 or _choose_sizes(learner, factor * growth) == (batch, micro_batch):
            return found
        growth *= factor


def _choose_sizes(learner: Learner, growth: int) -> tuple[int, int]:
    """A batch and its micro-batches. At most half of the data, unless the present batch is more."""
    samples = len(learner.probed.samples)
    if samples < 2:
        raise Problem(f"the noise scale compares samples, but there is {samples}: give more data")
    if learner.batchnorm_group is None:
        batch = min(growth * max(learner.now, _SMALLEST_BATCH), max(learner.now, samples // 2, 2))
        batch = max(2, min(batch, samples))
        return batch, max(1, batch // _MICRO_BATCHES)
    group = max(1, min(learner.batchnorm_group, samples // 2))
    groups = max(2, min(growth * max(2, learner.now // group), samples // 2 // group))
    return groups * group, group


def _sample_noise(learner: Learner, batch: int, micro_batch: int, batches: int) -> NoiseSample:
    with preserve_model(learner.model):
        noise, signal = sample_noise_and_signal(learner.probed, batch, micro_batch, batches)
    layers = noise_by_tensor(learner.model, noise, signal)
    return NoiseSample(noise.sum(dim=1).tolist(), signal.sum(dim=1).tolist(), layers, batch, micro_batch)
