"""The critical batch: where more samples per step stop saving steps, E(B) = E0·(1 + B/Bc).

E(B) is the number of samples that a training with batch B needs to reach a target. Far below Bc it is E0 at any batch,
so that steps fall as 1/B; at Bc it is twice E0 (McCandlish et al. 2018, section 2.2; Shallue et al. 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from bigbatch.errors import Problem
from bigbatch.output.formatting import format_number, format_range
from bigbatch.sweeps.intervals import CONFIDENCE, confidence_interval

SamplesToTarget = Mapping[int, Sequence[float | None]]  # by batch, one per run; None: diverged, or never reached it
_LEAST_BATCHES = 3  # two always lie on a line
_LEAST_RUNS = 2  # without differences between seeds an interval is too narrow to compare


@dataclass(frozen=True)
class BatchPoint:
    """The runs of one batch: what they needed to reach the target, if all of them did."""

    global_batch: int
    runs: int
    reached: int
    samples: float | None  # mean; None unless all runs reached the target: a mean of the fast ones would be too low
    low: float | None  # 95 % t-interval over runs
    high: float | None
    fitted: float | None  # E(B) of the fit

    @property
    def steps(self) -> float | None:
        return None if self.samples is None else self.samples / self.global_batch


@dataclass(frozen=True)
class CriticalBatch:
    """The fit and the points behind it. `batch` is inf where the samples do not grow with the batch."""

    points: tuple[BatchPoint, ...]
    batch: float | None  # Bc; None without a fit
    low: float | None  # 95 % bootstrap interval
    high: float | None
    small_batch_samples: float | None  # E0
    note: str

    @property
    def largest_error(self) -> float:
        """The largest relative difference between a point and the fit."""
        return max(abs(p.fitted / p.samples - 1) for p in self.points if p.samples and p.fitted)

    def describe(self) -> str:
        """`2,930 (1,850 to 4,100)`."""
        if self.batch is None or self.low is None:
            return "none"
        batch, high = (None if end == inf else end for end in (self.batch, self.high))
        return f"{format_number(batch)} ({format_range(self.low, high)})"


def critical_batch(
    samples_to_target: SamplesToTarget, *, budget: float | None = None, resamples: int = 2000, seed: int = 0
) -> CriticalBatch:
    """Fit E(B) = E0·(1 + B/Bc) to the samples that runs of each batch needed to reach a target.

        critical_batch({128: [91e3, 93e3], 1024: [118e3, 121e3], 8192: [330e3, None]}, budget=600e3)

    Least squares of the relative errors of means. A run that diverged or never reached the target is None: its batch is
    a point without a mean and is not fitted. If the fit says that it should have reached the target within the
    `budget`, the samples that each run was given, Bc is too large, and the note says so.

    The interval is a bootstrap over batches and over the runs of each: misfit of the formula, and seeds.
    """
    if any(batch < 1 for batch in samples_to_target):
        raise Problem(f"a batch must be at least 1, got {min(samples_to_target)}: use the number of samples in a step")
    runs = {batch: list(found) for batch, found in sorted(samples_to_target.items()) if found}
    fitted = {b: np.array(found, dtype=float) for b, found in runs.items() if None not in found}
    if any(not np.all(np.isfinite(found) & (found > 0)) for found in fitted.values()):
        raise Problem("samples to a target must be finite and above 0: give None for a run that never reached it")
    if len(fitted) < _LEAST_BATCHES:
        points = tuple(_build_point(batch, found, None) for batch, found in runs.items())
        note = f"{len(fitted)} batches reached the target with all their runs, a fit needs {_LEAST_BATCHES}"
        return CriticalBatch(points, None, None, None, None, note)
    e0, slope = _fit(np.array(list(fitted)), np.array([found.mean() for found in fitted.values()]))
    points = tuple(_build_point(batch, found, e0 + slope * batch) for batch, found in runs.items())
    low, high = _bootstrap(fitted, resamples, np.random.default_rng(seed))
    return CriticalBatch(points, e0 / slope if slope else inf, low, high, e0, _describe_limits(points, budget))


def compare_critical_batches(found: Mapping[str, CriticalBatch]) -> list[str]:
    """Say of each method whether it extends the critical batch of the first, whose intervals decide."""
    (first, reference), *others = found.items()
    sentences = []
    for name, other in others:
        if other.low is None or other.high is None or reference.low is None or reference.high is None:
            continue
        verdict = "the intervals overlap: no difference shown"
        if any(point.runs < _LEAST_RUNS for fit in (reference, other) for point in fit.points):
            verdict = f"cannot tell with fewer than {_LEAST_RUNS} runs at a batch"
        elif other.low > reference.high:
            verdict = f"{name} extends it"
        elif other.high < reference.low:
            verdict = f"{name} shortens it"
        sentences.append(
            f"critical batch of {name}, {other.describe()}, against {first}, {reference.describe()}: {verdict}"
        )
    return sentences


def _fit(batches: np.ndarray, samples: np.ndarray) -> tuple[float, float]:
    """Return E0 and E0/Bc of the least sum of ((E0 + E0/Bc·B)/E − 1)², neither below 0."""
    from scipy.optimize import nnls

    e0, slope = nnls(np.stack([1 / samples, batches / samples], axis=1), np.ones(len(samples)))[0]
    return float(e0), float(slope)


def _bootstrap(runs: dict[int, np.ndarray], resamples: int, random: np.random.Generator) -> tuple[float, float]:
    """Return the ends of the percentile interval of Bc over draws of batches and of their runs."""
    batches = np.array(list(runs))
    found: list[float] = []
    while len(found) < resamples:
        drawn = random.choice(batches, len(batches))
        if len(set(drawn.tolist())) > 1:  # one batch alone has no slope
            means = [random.choice(runs[batch], len(runs[batch])).mean() for batch in drawn.tolist()]
            e0, slope = _fit(drawn, np.array(means))
            found.append(e0 / slope if slope else inf)
    low, high = np.quantile(found, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="nearest")
    return float(low), float(high)


def _build_point(batch: int, found: Sequence[float | None], fitted: float | None) -> BatchPoint:
    reached = [one for one in found if one is not None]
    mean, low, high = confidence_interval(reached, (0.0, inf)) if len(reached) == len(found) else (None, None, None)
    return BatchPoint(batch, len(found), len(reached), mean, low, high, fitted)


def _describe_limits(points: Sequence[BatchPoint], budget: float | None) -> str:
    """Name the batches that are not fitted, and whether they contradict the fit."""
    notes = []
    if any(point.runs == 1 for point in points):
        notes.append("batches with one run: the interval holds less than the differences between seeds")
    for point in points:
        if point.samples is None and point.fitted is not None:
            text = f"{point.runs - point.reached} of {point.runs} runs at {point.global_batch} did not reach the target"
            if budget is not None and point.fitted < budget:
                text += f", which the fit expects after {format_number(point.fitted)} samples: Bc is too large"
            notes.append(text)
    return "; ".join(notes)
