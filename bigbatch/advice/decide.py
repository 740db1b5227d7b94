"""From the noise scale and the time of a step to a batch: what it gains, what it costs, and how sure that is.

With φ the noise scale, a loss takes 1 + φ/B times the fewest steps to reach, so samples in proportion to φ + B
(McCandlish et al. 2018, section 2.2). A step takes a + b·B seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bigbatch.advice.words import percent

Floats = NDArray[np.float64]
Grade = Literal["high", "medium", "low"]

LEVEL = 0.9  # of every interval here
_FEW_STEPS = 50
_DRIFT = 4.0  # of the noise scale, within the second half of the short training
_GRADES: tuple[Grade, ...] = ("high", "medium", "low")


def samples_factor(batch: Any, now: float, noise_scale: Any) -> Any:
    """Samples to the same loss at `batch` over those at `now`: (φ + B) / (φ + B₀). Without an end to φ, 1."""
    phi = np.asarray(noise_scale, float)
    endless = np.isinf(phi)
    finite = np.where(endless, 1.0, phi)
    return np.where(endless, 1.0, (finite + batch) / (finite + now))


def efficiency(batch: Any, now: float, noise_scale: Any) -> Any:
    """How much a sample teaches at `batch`, relative to `now`."""
    return 1 / samples_factor(batch, now, noise_scale)


def time_factor(batch: Any, now: float, noise_scale: Any, fixed_seconds: Any, seconds_per_sample: Any) -> Any:
    """Time to the same loss at `batch` over that at `now`."""
    steps = samples_factor(batch, now, noise_scale) * now / batch
    return steps * (fixed_seconds + seconds_per_sample * batch) / (fixed_seconds + seconds_per_sample * now)


def goodput(batch: Any, now: float, noise_scale: Any, fixed_seconds: Any, seconds_per_sample: Any) -> Any:
    """Progress a second at `batch` over that at `now`: throughput times efficiency."""
    return 1 / time_factor(batch, now, noise_scale, fixed_seconds, seconds_per_sample)


def optimum(noise_scale: Any, fixed_seconds: Any, seconds_per_sample: Any) -> Any:
    """B* = √(aφ/b), where goodput peaks; infinite where a sample takes no time or nothing is known above φ."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.sqrt(np.asarray(fixed_seconds, float) * noise_scale / seconds_per_sample)
    return np.where(np.isnan(found), 0.0, found)  # 0·∞: a step costs nothing, so that a batch of one is best


def rounded(batch: float, smallest: int, cap: int) -> int:
    """The nearest power of two between two limits, of which the cap is the harder one; goodput is flat enough at its
    peak for that (at most 3 % less where no limit is met)."""
    power = 2 ** round(math.log2(max(smallest, min(batch, cap))))
    if power < smallest:
        power *= 2
    return power if power <= cap else max(1, 2 ** math.floor(math.log2(cap)))


def ends(drawn: Floats) -> list[float | None]:
    """The interval that holds LEVEL of the draws; None is infinity."""
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
    return [float(value) if math.isfinite(value) else None for value in (low, high)]


@dataclass(frozen=True)
class Known:
    """What was measured, and draws of it that carry its doubt."""

    now: int
    noise_scale: float  # its lower end where only that is known
    only_lower_bound: bool
    fixed_seconds: float
    seconds_per_sample: float
    noise_draws: Floats
    fixed_draws: Floats
    per_sample_draws: Floats

    def best(self) -> float:
        return float(optimum(self.noise_scale, self.fixed_seconds, self.seconds_per_sample))

    def best_interval(self) -> list[float | None]:
        return ends(optimum(self.noise_draws, self.fixed_draws, self.per_sample_draws))

    def goodput(self, batch: float) -> dict[str, Any]:
        value = goodput(batch, self.now, self.noise_scale, self.fixed_seconds, self.seconds_per_sample)
        drawn = goodput(batch, self.now, self.noise_draws, self.fixed_draws, self.per_sample_draws)
        return {"batch": batch, "value": float(value), "interval": ends(drawn)}

    def expected(self, batch: int, samples_now: float | None) -> dict[str, Any]:
        """Steps, samples and seconds to the same loss as at the batch of now, each as a factor and, where the length
        of the training is known, as a number."""
        factor = samples_factor(batch, self.now, self.noise_scale)
        drawn = samples_factor(batch, self.now, self.noise_draws)
        fewer = self.now / batch
        seconds = time_factor(batch, self.now, self.noise_scale, self.fixed_seconds, self.seconds_per_sample)
        drawn_seconds = time_factor(batch, self.now, self.noise_draws, self.fixed_draws, self.per_sample_draws)
        step_now = self.fixed_seconds + self.seconds_per_sample * self.now
        return {
            "steps": _against(factor * fewer, drawn * fewer, None if samples_now is None else samples_now / self.now),
            "samples": _against(factor, drawn, samples_now),
            "seconds": _against(
                seconds, drawn_seconds, None if samples_now is None else samples_now / self.now * step_now
            ),
        }


def _against(factor: Any, drawn: Any, now: float | None) -> dict[str, Any]:
    low, high = ends(drawn)
    return {
        "factor": float(factor),
        "interval": [low, high],
        "now": now,
        "then": None if now is None else now * float(factor),
    }


def graded(
    *,
    interval: list[float | None],
    only_lower_bound: bool,
    misfit: float,
    spread: float,
    steps: int,
    warmup_reached: bool,
    best: float,
    timed: tuple[int, int],
    drift: float | None,
) -> tuple[Grade, list[str]]:
    """high, medium or low, and each reason that it is not higher; without one, why it is high."""
    low, high = interval
    width = high / low if high is not None and low else math.inf
    faults: list[tuple[int, str]] = []
    if only_lower_bound:
        faults.append((2, "the noise scale is only known from below, and with it the batch"))
    elif high is None:
        faults.append((2, "the interval of the best batch has no end"))
    elif not low:
        any_up_to = f"the best batch may be any up to {high:.3g}"
        faults.append((2, f"a step's fixed cost could not be told from none: {any_up_to}"))
    elif width > 2:
        faults.append((2 if width > 6 else 1, f"the best batch is known within a factor of {width:.1f} only"))
    if misfit > 0.1:
        faults.append((2 if misfit > 0.3 else 1, f"step times miss the line a + b·B by up to {percent(misfit)}"))
    if spread > 0.25:
        faults.append(
            (1, f"the machine was busy: the same step took {percent(spread)} longer at the median than at best")
        )
    if not warmup_reached:
        faults.append((2, "the warm-up was not over when measuring began"))
    elif steps < _FEW_STEPS:
        faults.append((1, f"only {steps} steps were trained before measuring"))
    if drift is not None and not 1 / _DRIFT <= drift <= _DRIFT:
        faults.append((1, f"the noise scale is still on the move: {drift:.2g} times what it was half-way"))
    if not timed[0] / 2 <= best <= 2 * timed[1]:
        faults.append((1, f"the best batch, {best:.3g}, is far outside of the timed ones ({timed[0]} to {timed[1]})"))
    if not faults:
        return "high", [f"the best batch is known within a factor of {width:.1f}, step times fit to {percent(misfit)}"]
    return _GRADES[max(fault for fault, _ in faults)], [reason for _, reason in faults]
