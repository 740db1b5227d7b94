"""Targets: how many samples and steps a run needs until a metric reaches a value (`test_accuracy=0.98`).

Metrics of evaluations are interpolated linearly in samples between two evaluations. Training metrics are smoothed
first: the mean over the last tenth of all samples so far (at least one step), placed at the mean position of the
weights that it was measured with. So the window is equally wide relative to the progress for every batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bigbatch import settings
from bigbatch.artifacts.metrics import MetricsRow
from bigbatch.errors import Problem

_EXAMPLE = "test_accuracy=0.98"
_METRIC = re.compile(r"(train|test)_(accuracy|loss|perplexity)(_\w+)?")
_SMOOTHED_FRACTION = 0.1  # of the samples so far


@dataclass(frozen=True)
class Target:
    """A value that a metric is to reach: an accuracy from below, a loss or a perplexity from above."""

    metric: str
    value: float

    def __post_init__(self) -> None:
        if not _METRIC.fullmatch(self.metric):
            raise Problem(f"--target {self}: there is no metric '{self.metric}': use test_accuracy, test_loss, ...")
        if self.goes_up and not 0 < self.value <= 1:
            raise Problem(f"--target {self}: an accuracy is a fraction above 0 and up to 1: write {_EXAMPLE}")
        if not 0 < self.value < np.inf:
            raise Problem(f"--target {self}: the value must be above 0, got {self.value:g}: write {_EXAMPLE}")

    def __str__(self) -> str:
        return f"{self.metric}={self.value:g}"

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parse METRIC=VALUE."""
        metric, value = settings.parse(text, example=_EXAMPLE)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Problem(f"--target {text} does not end in a number: write {_EXAMPLE}")
        return cls(metric, float(value))

    @property
    def goes_up(self) -> bool:
        return "_accuracy" in self.metric


@dataclass(frozen=True)
class Crossing:
    """Where a run first reached a target."""

    target: Target
    samples: float
    steps: float
    seconds: float | None  # None if the run has no evaluation yet
    is_upper_bound: bool = False  # the first evaluation was already past the target


def first_crossing(rows: Iterable[MetricsRow], target: Target) -> Crossing | None:
    """Return where the rows of metrics.jsonl first reach the target, or None if they never do."""
    rows = list(rows)
    found = [row for row in rows if row.get(target.metric) is not None]  # null: not finite
    samples, steps, values = (
        np.array([row[name] for row in found], dtype=float) for name in ("samples", "step", target.metric)
    )
    if target.metric.startswith("train_"):
        samples, steps, values = _smooth(samples, steps, values, np.array([row["global_batch"] for row in found]))
    reached = np.flatnonzero(values >= target.value if target.goes_up else values <= target.value)
    if not len(reached):
        return None
    at = int(reached[0])
    before = max(at - 1, 0)
    fraction = (target.value - values[before]) / (values[at] - values[before]) if at else 1.0
    crossed_samples = samples[before] + fraction * (samples[at] - samples[before])
    crossed_steps = steps[before] + fraction * (steps[at] - steps[before])
    timed = np.array([(0.0, 0.0), *((row["samples"], row["seconds"]) for row in rows if "seconds" in row)])
    seconds = float(np.interp(crossed_samples, timed[:, 0], timed[:, 1])) if len(timed) > 1 else None
    return Crossing(target, float(crossed_samples), float(crossed_steps), seconds, is_upper_bound=at == 0)


def _smooth(
    samples: np.ndarray, steps: np.ndarray, values: np.ndarray, batches: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return samples, steps and values as means over windows, weighted by samples.

    The loss of a step is that of the weights before it: they have seen one batch and one step less.
    """
    sums = np.cumsum(batches * np.stack([samples - batches, steps - 1, values, np.ones_like(values)]), axis=1)
    sums = np.concatenate([np.zeros((4, 1)), sums], axis=1)
    starts = np.searchsorted(samples, (1 - _SMOOTHED_FRACTION) * samples, side="right")
    windows = sums[:, 1:] - sums[:, starts]
    return windows[0] / windows[3], windows[1] / windows[3], windows[2] / windows[3]
