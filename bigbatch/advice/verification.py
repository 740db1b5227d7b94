"""Is twice the batch worse? Short trainings from one point at B and 2B, scaled learning rates, equal samples."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bigbatch.advice.goodput import LEVEL
from bigbatch.advice.learner import Learner
from bigbatch.errors import Problem
from bigbatch.output.formatting import format_percent
from bigbatch.probes.measurement.read_only import preserve_model
from bigbatch.probes.measurement.record import Record
from bigbatch.probes.noise_scale import samples_factor
from bigbatch.schedules import scale_lr
from bigbatch.sweeps.intervals import confidence_interval

_SEEDS = 5
_FEWEST_STEPS, _MOST_STEPS = 4, 64  # of the larger batch
_EVALUATION_SAMPLES = 2048


@dataclass(frozen=True)
class LossComparison(Record):
    """The mean of L(2B) − L(B) over seeds, with its confidence interval."""

    difference: float | None
    interval: list[float] | None
    verdict: str  # worse, better, no significant difference, undecided
    said: str


@dataclass(frozen=True)
class Verification(LossComparison):
    batches: list[int]
    lrs: list[float]
    samples: int
    seeds: int
    loss_before: float
    losses: list[list[float | None]]  # [seeds, batches]
    expected_samples_factor: float


def verify_batch(
    learner: Learner, batch: int, noise_scale: float, seconds: float, seconds_per_sample: float
) -> Verification:
    """Losses after equal samples at B and 2B, with learning rates that follow √B, on the same samples."""
    smaller = min(batch, learner.data_cap // 2)
    if smaller < 1:
        raise Problem("--verify compares two batches, but there is one sample: give more data, or leave it out")
    larger = 2 * smaller
    lr = learner.lr()
    if lr == 0:
        raise Problem(f"--verify needs a learning rate above 0, but that of {learner.of} is 0 here: give its recipe")
    lrs = {size: scale_lr(lr, size / learner.now, "sqrt") for size in (smaller, larger)}
    affordable = int(seconds / (2 * _SEEDS * seconds_per_sample * larger))
    samples = max(_FEWEST_STEPS, min(_MOST_STEPS, affordable)) * larger
    losses = [
        [_loss_after(learner, size, samples // size, lrs[size], number) for size in (smaller, larger)]
        for number in range(_SEEDS)
    ]
    compared = compare_losses(losses, smaller, larger)
    return Verification(
        difference=compared.difference,
        interval=compared.interval,
        verdict=compared.verdict,
        said=compared.said,
        batches=[smaller, larger],
        lrs=[lrs[smaller], lrs[larger]],
        samples=samples,
        seeds=_SEEDS,
        loss_before=_evaluate_loss(learner),
        losses=losses,
        expected_samples_factor=float(samples_factor(larger, smaller, noise_scale)),
    )


def compare_losses(pairs: list[list[float | None]], smaller: int, larger: int) -> LossComparison:
    """Compare by Student's t; a loss of None was not finite."""
    differences = [high - low for low, high in pairs if low is not None and high is not None]
    if len(differences) < len(pairs):
        diverged = [sum(pair[place] is None for pair in pairs) for place in (0, 1)]
        said = (
            f"the loss was not finite in {diverged[0]} of {len(pairs)} trainings at {smaller} and in {diverged[1]} at "
            f"{larger}"
        )
        return LossComparison(None, None, "worse" if diverged[1] > diverged[0] else "undecided", said)
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
    return LossComparison(mean, [low, high], verdict, said)


def _loss_after(learner: Learner, batch: int, steps: int, lr: float, number: int) -> float | None:
    with learner.undo_steps():
        learner.skip_ahead(number)
        try:
            for _ in range(steps):
                learner.step(batch, lr)
        except Problem:  # the loss was not finite
            return None
        loss = _evaluate_loss(learner)
    return loss if math.isfinite(loss) else None


def _evaluate_loss(learner: Learner) -> float:
    """On fixed samples, in evaluation mode."""
    probed = learner.probed
    with preserve_model(learner.model, "eval"):
        return probed.objective(probed.fixed_indices(_EVALUATION_SAMPLES), micro_batch=256).value()
