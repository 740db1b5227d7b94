"""The noise scale at a learner's present weights, and how far from it the noise scale of the whole training may be.

At one point it comes from batches that grow until it is known or time is up. Over a training it changes, without a
direction that all problems share, and it differs between initialisations: `project_noise` includes both.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from bigbatch.advice.goodput import LEVEL, Floats
from bigbatch.advice.history import NoisePoint
from bigbatch.advice.learner import Learner
from bigbatch.errors import Problem
from bigbatch.probes.measurement.read_only import preserve_model
from bigbatch.probes.measurement.record import Record
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
# ln φ: its change per doubling of the steps, and its standard deviation between initialisations, both measured over
# whole trainings of six small problems, three seeds each (an MLP, a CNN and linear models on digits and synthetic data)
_USUAL_DRIFT, _USUAL_SPREAD = 0.8, 0.4
_USUAL_WEIGHT = 4  # counts as so many numbers
_KEY = 702  # keeps these random numbers apart from others (see rng.py)
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
        return bool(np.isinf(self.draws).mean() > (1 - LEVEL) / 2)

    @property
    def estimate(self) -> float | None:
        """trΣ/|G|² of the means, never a mean of quotients; None where it cannot be told."""
        return noise_to_signal(float(np.mean(self.noise)), float(np.mean(self.signal)))

    @property
    def best_known(self) -> float | None:
        """The estimate, or the lower end where only that is known; None where the samples do not differ."""
        if not self.only_lower_bound:
            return self.estimate
        # a batch shows little of a noise scale beyond twice its size, so the batch itself is a safe lower bound
        return self.interval[0] or float(self.batch)


@dataclass(frozen=True)
class NoiseOutlook(Record):
    """How the noise scale of the rest of a training may differ from the measured one, as factors e^±."""

    doublings: float  # of the number of steps, from where it was measured to the end of the training
    drift: float  # standard deviation of ln φ per doubling
    initialisations: int  # that were trained; 0: the weights are given
    spread: float  # standard deviation of ln φ between initialisations


def assess_outlook(points: Sequence[NoisePoint], doublings: float, others: Sequence[NoisePoint] | None) -> NoiseOutlook:
    """Drift from the points over the training, spread from other initialisations; None: the weights are given.

    Few numbers say little of their own variance, so each is averaged with what other trainings showed.
    """
    known = [(math.log2(point.step), math.log(point.estimate)) for point in points if point.step and point.estimate]
    stages = known[-1:]
    for point in reversed(known):
        if point[0] <= stages[-1][0] - 1:
            stages.append(point)
    # a random walk over doublings: points that are further apart differ by √ of their distance
    changes = [(after - before) / math.sqrt(t - s) for (t, after), (s, before) in pairwise(stages)]
    drift = _pool(_USUAL_DRIFT, changes)
    if others is None:
        return NoiseOutlook(doublings, drift, 0, 0.0)
    steps, logs = [step for step, _ in known], [log for _, log in known]
    apart = [
        math.log(other.estimate) - float(np.interp(math.log2(other.step), steps, logs))
        for other in others
        if other.estimate and known
    ]
    return NoiseOutlook(doublings, drift, 1 + len(apart), _pool(_USUAL_SPREAD, apart))


def _pool(usual: float, numbers: Sequence[float]) -> float:
    return math.sqrt((_USUAL_WEIGHT * usual**2 + sum(x * x for x in numbers)) / (_USUAL_WEIGHT + len(numbers)))


def project_noise(draws: Floats, outlook: NoiseOutlook) -> Floats:
    """Draws of the noise scale, averaged over the rest of the training, from draws at the present weights.

    Each doubling takes as many steps as all before it, so later ones weigh twice as much.
    """
    generator = np.random.default_rng(_KEY)
    whole = math.ceil(outlook.doublings)
    lengths = np.minimum(1.0, outlook.doublings - np.arange(whole))  # the last doubling may be a part of one
    walks = np.cumsum(outlook.drift * np.sqrt(lengths) * generator.standard_normal((len(draws), whole)), axis=1)
    weights = np.concatenate([[1.0], 2.0 ** np.arange(whole) * (2.0**lengths - 1)])  # the steps so far, then the others
    factors = np.concatenate([np.ones((len(draws), 1)), np.exp(walks)], axis=1) @ weights / weights.sum()
    return np.asarray(draws * factors * np.exp(outlook.spread * generator.standard_normal(len(draws))))


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
