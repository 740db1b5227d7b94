"""Means over seeds with 95 % Student-t confidence intervals, as numbers and as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

CONFIDENCE = 0.95
_BOUNDS = {"test_accuracy": (0.0, 1.0)}  # a t-interval of few seeds can leave the range of the metric


class MeanInterval(NamedTuple):
    """A mean and the ends of its confidence interval, which are None for a single value."""

    mean: float
    low: float | None
    high: float | None


def confidence_interval(
    values: Sequence[float], bounds: tuple[float, float] = (-math.inf, math.inf), level: float = CONFIDENCE
) -> MeanInterval:
    """Return the mean and its t-interval, at 95 % mean ± t(.975, n − 1)·s/√n, clipped to the bounds."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return MeanInterval(mean, None, None)
    from scipy.special import stdtrit  # the quantile of the t-distribution; scipy.stats takes a second to import

    quantile = float(stdtrit(len(values) - 1, (1 + level) / 2))
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return MeanInterval(mean, max(mean - half, bounds[0]), min(mean + half, bounds[1]))


def metric_bounds(metric: str) -> tuple[float, float]:
    """Return the smallest and the largest possible value of a metric."""
    return _BOUNDS.get(metric, (-math.inf, math.inf))


def format_metric(value: float | None, metric: str) -> str:
    """Return `98.65 %` for an accuracy, `115.90` for a perplexity, `-` for None."""
    if value is None:
        return "-"
    return f"{100 * value:.2f} %" if metric == "test_accuracy" else f"{value:.2f}"


def format_mean(values: Sequence[float], metric: str, digits: int = 2) -> str:
    """Return `98.65 % ± 0.12`, or both ends where the interval is clipped: `91.00 %, 78.29 to 100.00`."""
    if not values:
        return "-"
    scale, unit = (100, " %") if metric == "test_accuracy" else (1, "")
    mean, low, high = confidence_interval(values, metric_bounds(metric))
    text = f"{scale * mean:.{digits}f}{unit}"
    if low is None or high is None:
        return text
    if math.isclose(high - mean, mean - low, abs_tol=1e-9):
        return f"{text} ± {scale * (high - mean):.{digits}f}"
    return f"{text}, {scale * low:.{digits}f} to {scale * high:.{digits}f}"
