"""The noise scale where a learner's weights are now, from batches that grow until it is known or time is up."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bigbatch.advice.decide import Floats, ends
from bigbatch.advice.learner import Learner
from bigbatch.errors import Problem
from bigbatch.probes.measurement.objective import describe_mode, trainable_parameters
from bigbatch.probes.measurement.read_only import preserve_model
from bigbatch.probes.noise_scale import bootstrap_noise_scales, noise_to_signal, sample_noise_and_signal

_ROWS, _FEW_ROWS = 16, 8
_SMALLEST_BATCH = 64
_PIECES = 8  # of a batch, where BatchNorm does not say how large they are
_TIGHT = 1.5  # upper over lower end: no need to know more, since B* goes with the root


@dataclass(frozen=True)
class Noise:
    """Rows of trΣ and |G|², a batch each, and what they say."""

    noise: tuple[float, ...]
    signal: tuple[float, ...]
    layers: dict[str, dict[str, float]]
    batch: int
    piece: int
    treatment: dict[str, Any]

    @cached_property
    def draws(self) -> Floats:
        return bootstrap_noise_scales(self.noise, self.signal)

    @property
    def interval(self) -> list[float | None]:
        return ends(self.draws)

    @property
    def only_lower_bound(self) -> bool:
        """The signal's lower end is not above zero: the batches were too small to tell it from the noise."""
        return self.interval[1] is None

    @property
    def estimate(self) -> float | None:
        """trΣ/|G|² of the means, never a mean of quotients; None where the mean signal is not positive."""
        return noise_to_signal(float(np.mean(self.noise)), float(np.mean(self.signal)))

    @property
    def used(self) -> float:
        """What to reckon with: the estimate, or the lower end where that is all there is."""
        low = self.interval[0]
        if self.only_lower_bound or self.estimate is None:
            # a batch says little of a noise scale beyond twice its size: so much can be said when it says nothing
            return float(self.batch) if low is None else low
        return self.estimate

    def about(self) -> dict[str, Any]:
        return {
            "estimate": self.estimate,
            "interval": self.interval,
            "only_lower_bound": self.only_lower_bound,
            "noise": float(np.mean(self.noise)),
            "signal": float(np.mean(self.signal)),
            "rows": len(self.noise),
            "batch": self.batch,
            "piece": self.piece,
        }


def at_a_glance(learner: Learner) -> Noise:
    """From few batches, for a point on the way."""
    batch, piece = _sizes(learner, growth=1)
    return _measured(learner, batch, piece, _FEW_ROWS)


def glance_samples(learner: Learner) -> int:
    """How many samples it takes."""
    return _FEW_ROWS * _sizes(learner, growth=1)[0]


def measured(learner: Learner, seconds: float) -> Noise:
    """Larger and larger batches, until the interval is tight, half the data is in a batch, or the next round would
    take longer than there is time."""
    started = time.perf_counter()
    growth = 1
    while True:
        batch, piece = _sizes(learner, growth)
        round_started = time.perf_counter()
        found = _measured(learner, batch, piece, _ROWS)
        now = time.perf_counter()
        low, high = found.interval
        if low is not None and high is not None and high <= _TIGHT * low:
            return found
        affordable = (seconds - (now - started)) / (now - round_started)  # rounds like this one
        factor = min(4, int(affordable))
        if factor < 2 or _sizes(learner, factor * growth) == (batch, piece):
            return found
        growth *= factor


def _sizes(learner: Learner, growth: int) -> tuple[int, int]:
    """A batch and its pieces. At most half of the data, unless the present batch is more."""
    samples = len(learner.subject.samples)
    if samples < 2:
        raise Problem(f"the noise scale compares samples, but there is {samples}: give more data")
    if learner.piece is None:
        batch = min(growth * max(learner.now, _SMALLEST_BATCH), max(learner.now, samples // 2, 2))
        batch = max(2, min(batch, samples))
        return batch, max(1, batch // _PIECES)
    piece = max(1, min(learner.piece, samples // 2))
    pieces = max(2, min(growth * max(2, learner.now // piece), samples // 2 // piece))
    return pieces * piece, piece


def _measured(learner: Learner, batch: int, piece: int, rows: int) -> Noise:
    with preserve_model(learner.model):
        noise, signal = sample_noise_and_signal(learner.subject, batch, piece, rows)
        said = describe_mode(learner.model, piece)
    means = zip(
        trainable_parameters(learner.model), noise.mean(dim=0).tolist(), signal.mean(dim=0).tolist(), strict=True
    )
    return Noise(
        tuple(noise.sum(dim=1).tolist()),
        tuple(signal.sum(dim=1).tolist()),
        {name: {"noise": s, "signal": q} for name, s, q in means},
        batch,
        piece,
        said,
    )
