"""The critical batch by trying it: short trainings from one point at several batches, with equal samples.

From the present weights, branches at k times the batch train as many samples each, with the options that the
optimizer's scaling rule gives (Merrill et al. 2025, arXiv 2505.23971). The largest batch whose smoothed loss is within
ε of the base's is the local critical batch. The paper takes a fixed ε. The default here is what the base gained in the
second half of its samples: a branch within it needs at most about twice the samples, which is where McCandlish et al.
put the critical batch, so that it can be compared with the noise scale and with a sweep's E(B) = E0·(1 + B/Bc).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import numpy as np

from bigbatch.advice.goodput import DRAWS, LEVEL, Floats
from bigbatch.advice.learner import Learner
from bigbatch.errors import Problem
from bigbatch.output.formatting import format_number, format_percent
from bigbatch.probes.measurement.read_only import preserve_model
from bigbatch.probes.measurement.record import Record
from bigbatch.sweeps.intervals import confidence_interval

_ORDERS = 3  # of the samples, for each branch
_EVALUATIONS = 8  # along a branch, at equal numbers of samples
_EVALUATION_SAMPLES = 1024
_MOST_STEPS = 64  # of the largest batch
_VERIFY_ORDERS = 5


@dataclass(frozen=True)
class Branch(Record):
    """Trainings at one batch from the same weights: the loss on fixed samples, at equal numbers of samples."""

    batch: int
    lr: float
    losses: list[list[float | None]]  # [orders, evaluations]; None where it was not finite

    def smoothed_losses(self, end: int = _EVALUATIONS) -> list[float]:
        """The mean of two evaluations in each order of the samples; infinite if one was not finite."""
        return [fmean(math.inf if loss is None else loss for loss in order[end - 2 : end]) for order in self.losses]

    def smoothed_loss(self, end: int = _EVALUATIONS) -> float:
        return fmean(self.smoothed_losses(end))


@dataclass(frozen=True)
class Branching(Record):
    """The local critical batch, between two that were trained."""

    critical_batch: int | None  # the largest batch within ε; None: cannot tell
    beyond: int | None  # the next one, which is not within ε; None: all were, so it is only a lower bound
    estimate: float | None  # where the loss leaves ε, interpolated between the two
    tolerance: float | None  # ε
    samples: int  # of each branch
    loss_before: float
    branches: list[Branch]

    @property
    def draws(self) -> Floats:
        """Draws of the critical batch between its ends; the upper one may be infinite."""
        if self.critical_batch is None:
            return np.full(DRAWS, np.nan)
        if self.beyond is None:
            return np.where(np.arange(DRAWS) % 2, np.inf, self.critical_batch)
        return np.geomspace(self.critical_batch, self.beyond, DRAWS)

    @property
    def said(self) -> str:
        if self.critical_batch is None:
            return "cannot tell: the loss at the present batch fell by less than its noise while the branches trained"
        found = (
            f"{self.critical_batch:,} or more"
            if self.beyond is None
            else f"{format_number(self.estimate)} ({self.critical_batch:,} to {self.beyond:,})"
        )
        return (
            f"{found}: up to it the loss after {format_number(self.samples)} samples is "
            f"within {self.tolerance:.2g} of that at {format_number(self.branches[0].batch)}"
        )


@dataclass(frozen=True)
class Verification(Record):
    """The mean of L(2B) − L(B) after equal samples, with its confidence interval over orders of the samples."""

    difference: float | None
    interval: list[float] | None
    verdict: str  # worse, better, no significant difference, undecided
    said: str
    branches: list[Branch]
    samples: int
    loss_before: float


def branch(
    learner: Learner, cap: int, seconds: float, seconds_per_sample: float, tolerance: float | None = None
) -> Branching:
    """Train branches at 1, 2, 4 ... times the present batch, as far as data, memory and time allow."""
    affordable = seconds / seconds_per_sample / _ORDERS  # samples of all branches together
    batches = [learner.now]
    while 2 * batches[-1] <= cap and (len(batches) + 1) * _EVALUATIONS * 2 * batches[-1] <= affordable:
        batches.append(2 * batches[-1])
    if len(batches) == 1:
        raise Problem(
            f"--branch trains at {learner.now} and at twice as many samples, but data, memory or time do not allow it: "
            f"give more --seconds, or a smaller batch"
        )
    steps = min(_MOST_STEPS, affordable / len(batches) / batches[-1])
    samples = _EVALUATIONS * max(1, int(steps / _EVALUATIONS)) * batches[-1]
    loss_before, branches = _train_branches(learner, batches, samples, _ORDERS)
    return find_critical_batch(branches, samples, loss_before, tolerance)


def find_critical_batch(
    branches: list[Branch], samples: int, loss_before: float, tolerance: float | None = None
) -> Branching:
    """The largest batch up to which no branch is worse than the first, the base, by more than ε."""
    base = branches[0].smoothed_loss()
    if tolerance is None and math.isfinite(base):
        halves = zip(branches[0].smoothed_losses(_EVALUATIONS // 2), branches[0].smoothed_losses(), strict=True)
        gained, low, _ = confidence_interval([before - after for before, after in halves], level=LEVEL)
        tolerance = gained if low is not None and low > 0 else None
    if not math.isfinite(base) or tolerance is None:
        return Branching(None, None, None, None, samples, loss_before, branches)
    for before, after in pairwise(branches):
        if after.smoothed_loss() > base + tolerance:
            rise = after.smoothed_loss() - before.smoothed_loss()  # infinite where the loss was not finite
            part = (base + tolerance - before.smoothed_loss()) / rise
            estimate = before.batch * (after.batch / before.batch) ** part
            return Branching(before.batch, after.batch, estimate, tolerance, samples, loss_before, branches)
    largest = branches[-1].batch
    return Branching(largest, None, float(largest), tolerance, samples, loss_before, branches)


def verify_batch(learner: Learner, batch: int, seconds: float, seconds_per_sample: float) -> Verification:
    """Losses after equal samples at B and 2B."""
    smaller = min(batch, learner.data_cap // 2)
    if smaller < 1:
        raise Problem("--verify compares two batches, but there is one sample: give more data, or leave it out")
    affordable = seconds / seconds_per_sample / (2 * _VERIFY_ORDERS) / (2 * smaller)  # steps of the larger batch
    samples = _EVALUATIONS * max(1, int(min(_MOST_STEPS, affordable) / _EVALUATIONS)) * 2 * smaller
    loss_before, branches = _train_branches(learner, [smaller, 2 * smaller], samples, _VERIFY_ORDERS)
    return compare_losses(branches, samples, loss_before)


def compare_losses(branches: list[Branch], samples: int, loss_before: float) -> Verification:
    """Compare the last losses of two branches by Student's t."""
    low_losses, high_losses = ([order[-1] for order in branch.losses] for branch in branches)
    smaller, larger = (branch.batch for branch in branches)
    pairs = list(zip(low_losses, high_losses, strict=True))
    differences = [high - low for low, high in pairs if low is not None and high is not None]
    if len(differences) < len(pairs):
        low_count, high_count = low_losses.count(None), high_losses.count(None)
        said = (
            f"the loss was not finite in {low_count} of {len(pairs)} trainings at {smaller} and in {high_count} at "
            f"{larger}"
        )
        verdict = "worse" if high_count > low_count else "undecided"
        return Verification(None, None, verdict, said, branches, samples, loss_before)
    mean, low, high = confidence_interval(differences, level=LEVEL)
    assert low is not None
    assert high is not None
    verdict = "worse" if low > 0 else "better" if high < 0 else "no significant difference"
    if verdict in ("worse", "better"):
        words = f"significantly {verdict} at {larger} than at {smaller}"
    else:
        words = f"not significantly different at {larger} and at {smaller}"
    said = (
        f"after equal samples the loss is {words}: by {mean:+.4f} ({format_percent(LEVEL)}: {low:+.4f} to {high:+.4f})"
    )
    return Verification(mean, [low, high], verdict, said, branches, samples, loss_before)


def _train_branches(learner: Learner, batches: Sequence[int], samples: int, orders: int) -> tuple[float, list[Branch]]:
    """The loss before, and a branch for each batch. `samples` are whole steps of each batch between evaluations."""
    if learner.lr() == 0:
        raise Problem(f"branches need a learning rate above 0, but that of {learner.of} is 0 here: give its recipe")
    branches = []
    for batch in batches:
        factor, _ = learner.scale_options(batch)
        losses = [_train_branch(learner, batch, samples, number) for number in range(orders)]
        branches.append(Branch(batch, factor * learner.lr(), losses))
    return _evaluate_loss(learner), branches


def _train_branch(learner: Learner, batch: int, samples: int, number: int) -> list[float | None]:
    losses: list[float | None] = []
    factor, options = learner.scale_options(batch)
    with learner.undo_steps():
        learner.skip_ahead(number)
        for group in learner.optimizer.param_groups:
            group.update({name: value for name, value in options.items() if name in group})
        try:
            for _ in range(_EVALUATIONS):
                for _ in range(samples // _EVALUATIONS // batch):
                    learner.step(batch, factor * learner.lr())
                loss = _evaluate_loss(learner)
                losses.append(loss if math.isfinite(loss) else None)
        except Problem:  # the loss was not finite
            losses += [None] * (_EVALUATIONS - len(losses))
    return losses


def _evaluate_loss(learner: Learner) -> float:
    """On fixed samples, in evaluation mode."""
    probed = learner.probed
    with preserve_model(learner.model, "eval"):
        return probed.objective(probed.fixed_indices(_EVALUATION_SAMPLES), micro_batch=256).value()
