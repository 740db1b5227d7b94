"""Means with their doubt: 95 % Student-t intervals over seeds, of shares cut to 0-100 %, as numbers and as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

CONFIDENCE = 0.95
BOUNDS = {"test_accuracy": (0.0, 1.0)}  # what a measure can be; the t-interval of few seeds knows nothing of it


def interval(
    values: Sequence[float], bounds: tuple[float, float] = (-math.inf, math.inf)
) -> tuple[float, float | None, float | None]:
    """The mean and its 95 % t-interval, mean ± t(.975, n − 1)·s/√n, cut to the bounds. One value has no interval."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None, None
    from scipy.special import stdtrit  # the t-distribution's quantile; scipy.stats takes a second to import

    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return mean, max(mean - half, bounds[0]), min(mean + half, bounds[1])


def bounds(measure: str) -> tuple[float, float]:
    return BOUNDS.get(measure, (-math.inf, math.inf))


def shown(value: float | None, measure: str) -> str:
    """`98.65 %` or `115.90`."""
    if value is None:
        return "-"
    return f"{100 * value:.2f} %" if measure == "test_accuracy" else f"{value:.2f}"


def shown_mean(values: Sequence[float], measure: str, digits: int = 2) -> str:
    """`98.65 % ± 0.12`; where the interval is cut to what can be, its ends: `91.00 %, 78.29 to 100.00`."""
    if not values:
        return "-"
    scale, unit = (100, " %") if measure == "test_accuracy" else (1, "")
    mean, low, high = interval(values, bounds(measure))
    text = f"{scale * mean:.{digits}f}{unit}"
    if low is None or high is None:
        return text
    if math.isclose(high - mean, mean - low, abs_tol=1e-9):
        return f"{text} ± {scale * (high - mean):.{digits}f}"
    return f"{text}, {scale * low:.{digits}f} to {scale * high:.{digits}f}"
