"""From the noise scale and the time of a step to a batch: goodput, expected time, confidence intervals, a grade.

With φ the noise scale, a loss takes samples in proportion to φ + B. A step takes a + b·B seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bigbatch.output.formatting import format_percent
from bigbatch.probes.measurement.record import Record
from bigbatch.probes.noise_scale import Interval, quantile_interval, samples_factor

Floats = NDArray[np.float64]
Grade = Literal["high", "medium", "low"]

DRAWS = 1000  # of every uncertain number
LEVEL = 0.9  # of every confidence interval here
_FEW_STEPS = 50
_GRADES: tuple[Grade, ...] = ("high", "medium", "low")


def time_factor(batch: Any, now: float, noise_scale: Any, fixed_seconds: Any, seconds_per_sample: Any) -> Any:
    """Time to the same loss at `batch` over that at `now`."""
    steps = samples_factor(batch, now, noise_scale) * now / batch
    return steps * (fixed_seconds + seconds_per_sample * batch) / (fixed_seconds + seconds_per_sample * now)


def optimal_batch(noise_scale: Any, fixed_seconds: Any, seconds_per_sample: Any) -> Any:
    """B* = √(aφ/b), where goodput peaks; infinite where a sample takes no time or φ has no upper end; zero without
    fixed cost or without noise."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.sqrt(np.asarray(fixed_seconds, float) * noise_scale / seconds_per_sample)
    return np.where(np.isnan(found), 0.0, found)  # 0·∞: a step has no fixed cost


def round_to_power_of_two(batch: float, smallest: int, cap: int) -> int:
    """The nearest power of two between two limits, of which the cap is the stricter one. Goodput is flat enough at its
    peak for that (at most 3 % less where no limit applies)."""
    power = int(2 ** round(math.log2(max(smallest, min(batch, cap)))))
    if power < smallest:
        power *= 2
    return power if power <= cap else max(1, int(2 ** math.floor(math.log2(cap))))


@dataclass(frozen=True)
class GoodputPoint(Record):
    batch: int
    value: float
    interval: Interval


@dataclass(frozen=True)
class Expectation(Record):
    """What it takes to reach the same loss at another batch, relative to now and as a number."""

    factor: float
    interval: Interval  # of the factor
    now: float | None  # None where the length of the training is not known
    then: float | None


@dataclass(frozen=True)
class GoodputModel:
    """Noise scale φ, fixed seconds a and seconds per sample b, as estimates and as bootstrap draws of the three."""

    now: int
    estimates: tuple[float, float, float]
    draws: tuple[Floats, Floats, Floats]

    @property
    def optimum(self) -> float:
        return float(optimal_batch(*self.estimates))

    @property
    def optimum_interval(self) -> Interval:
        return quantile_interval(optimal_batch(*self.draws), LEVEL)

    def goodput(self, batch: float) -> float:
        """Progress per second at `batch` over that at the present one: throughput times efficiency."""
        return float(1 / time_factor(batch, self.now, *self.estimates))

    def goodput_point(self, batch: int) -> GoodputPoint:
        draws = 1 / time_factor(batch, self.now, *self.draws)
        return GoodputPoint(batch, self.goodput(batch), quantile_interval(draws, LEVEL))

    def expect(self, batch: int, samples_now: float | None) -> dict[str, Expectation]:
        """Steps, samples and seconds to the same loss as at the present batch."""
        (phi, fixed, per_sample), fewer = self.estimates, self.now / batch
        samples, drawn_samples = (samples_factor(batch, self.now, scale) for scale in (phi, self.draws[0]))
        seconds, drawn_seconds = (time_factor(batch, self.now, *given) for given in (self.estimates, self.draws))
        steps_now = None if samples_now is None else samples_now / self.now
        seconds_now = None if steps_now is None else steps_now * (fixed + per_sample * self.now)
        return {
            "steps": _expect(samples * fewer, drawn_samples * fewer, steps_now),
            "samples": _expect(samples, drawn_samples, samples_now),
            "seconds": _expect(seconds, drawn_seconds, seconds_now),
        }


def _expect(factor: Any, draws: Floats, now: float | None) -> Expectation:
    interval = quantile_interval(draws, LEVEL)
    return Expectation(float(factor), interval, now, None if now is None else now * float(factor))


@dataclass(frozen=True)
class Evidence:
    """What the confidence in an answer depends on."""

    source: str  # of the next: noise scale, or branching
    critical_batch: float | None
    interval: Interval  # of the best batch
    only_lower_bound: bool
    misfit: float
    spread: float
    steps: int
    warmup_is_over: bool
    best: float
    timed: tuple[int, int]  # the smallest and the largest batch


def grade_evidence(found: Evidence) -> tuple[Grade, list[str]]:
    """high, medium or low, and each reason that it is not higher; if there is none, why it is high."""
    low, high = found.interval
    width = high / low if high is not None and low else math.inf
    faults: list[tuple[int, str]] = []
    if found.critical_batch is None:
        faults.append((2, "cannot tell a noise scale: all samples have the same gradient"))
    elif found.only_lower_bound:
        faults.append((2, f"only a lower bound is known of the critical batch by {found.source}, and so of the batch"))
    elif high is None:
        faults.append((2, "the confidence interval of the best batch has no upper end"))
    elif not low:
        faults.append((2, f"a step may have no fixed cost: the best batch may be any up to {high:.3g}"))
    elif width > 2:
        faults.append((2 if width > 6 else 1, f"the best batch is known only within a factor of {width:.2g}"))
    if found.misfit > 0.1:
        severity = 2 if found.misfit > 0.3 else 1
        faults.append((severity, f"step times differ from the line a + b·B by up to {format_percent(found.misfit)}"))
    if found.spread > 0.25:
        percent = format_percent(found.spread)
        faults.append((1, f"the machine was busy: the same step took {percent} longer at the median than at best"))
    if not found.warmup_is_over:
        faults.append((2, "the warm-up was not over when measuring began"))
    elif found.steps < _FEW_STEPS:
        faults.append((1, f"only {found.steps} steps were trained before measuring"))
    smallest, largest = found.timed
    if found.best and not smallest / 2 <= found.best <= 2 * largest:
        faults.append((1, f"the best batch, {found.best:.3g}, is far outside the timed ones ({smallest} to {largest})"))
    if faults:
        return _GRADES[max(severity for severity, _ in faults)], [reason for _, reason in faults]
    fit = format_percent(found.misfit)
    return "high", [f"the best batch is known within a factor of {width:.2g}, step times fit to {fit}"]
