"""Is twice the batch worse? Branches from one point at B and 2B, scaled lrs, equal samples, several orders."""

from __future__ import annotations

import math
from typing import Any

from bigbatch.advice.decide import LEVEL, samples_factor
from bigbatch.advice.learner import Learner
from bigbatch.advice.measure import Say
from bigbatch.advice.words import percent
from bigbatch.errors import Problem
from bigbatch.probes.measurement.read_only import preserve_model
from bigbatch.schedules import scaled
from bigbatch.sweeps import confidence_interval

SEEDS = 5
_FEWEST_STEPS, _MOST_STEPS = 4, 64  # of the larger batch
_JUDGED_ON = 2048  # samples


def verified(
    learner: Learner, batch: int, noise_scale: float, seconds_per_sample: float, seconds: float, say: Say
) -> dict[str, Any]:
    """Losses after equal samples at B and 2B, whose lrs follow √B from the present one, on the same samples."""
    smaller = min(batch, learner.data_cap // 2)
    if smaller < 1:
        raise Problem("--verify compares two batches, but there is one sample: give more data, or leave it out")
    larger = 2 * smaller
    lr = learner.lr()
    if lr == 0:
        raise Problem(f"--verify would learn nothing: the lr of {learner.of} is 0 here; ask about its recipe")
    lrs = {size: scaled(lr, size / learner.now, "sqrt") for size in (smaller, larger)}
    affordable = int(seconds / (2 * SEEDS * seconds_per_sample * larger))
    steps = max(_FEWEST_STEPS, min(_MOST_STEPS, affordable))
    say(f"verifying: {SEEDS} times {steps * larger} samples at {smaller} and at {larger}")
    pairs = [
        tuple(_loss_after(learner, size, steps * larger // size, lrs[size], number) for size in (smaller, larger))
        for number in range(SEEDS)
    ]
    found = {
        "batches": [smaller, larger],
        "lrs": [lrs[smaller], lrs[larger]],
        "samples": steps * larger,
        "seeds": SEEDS,
        "loss_before": _loss(learner),
        "losses": [list(pair) for pair in pairs],
        "expected_samples_factor": float(samples_factor(larger, smaller, noise_scale)),
    }
    return found | compared(pairs, smaller, larger)


def compared(pairs: list[tuple[float | None, ...]], smaller: int, larger: int) -> dict[str, Any]:
    """The mean of L(2B) − L(B) over seeds with Student's interval, and what it says; None is a loss without end."""
    lost = [sum(pair[place] is None for pair in pairs) for place in (0, 1)]
    if any(lost):
        verdict = "worse" if lost[1] > lost[0] else "undecided"
        said = f"the loss had no end in {lost[0]} of {len(pairs)} branches at {smaller} and in {lost[1]} at {larger}"
        return {"difference": None, "interval": None, "verdict": verdict, "said": said}
    differences = [after_larger - after for after, after_larger in pairs]  # type: ignore[operator]
    mean, low, high = confidence_interval(differences, level=LEVEL)
    assert low is not None
    assert high is not None
    verdict = "worse" if low > 0 else "better" if high < 0 else "no difference beyond doubt"
    words = {
        "worse": f"beyond doubt worse at {larger} than at {smaller}",
        "better": f"beyond doubt better at {larger} than at {smaller}",
    }.get(verdict, f"not beyond doubt different at {larger} and at {smaller}")
    said = f"after equal samples the loss is {words}: by {mean:+.4f} ({percent(LEVEL)}: {low:+.4f} to {high:+.4f})"
    return {"difference": mean, "interval": [low, high], "verdict": verdict, "said": said}


def _loss_after(learner: Learner, batch: int, steps: int, lr: float, number: int) -> float | None:
    with learner.kept():
        learner.elsewhere(number)
        try:
            for _ in range(steps):
                learner.step(batch, lr)
        except Problem:  # the loss was not finite
            return None
        loss = _loss(learner)
    return loss if math.isfinite(loss) else None


def _loss(learner: Learner) -> float:
    """On fixed samples, as the model would be used."""
    subject = learner.subject
    with preserve_model(learner.model, "eval"):
        return subject.objective(subject.fixed_indices(_JUDGED_ON), micro_batch=256).value()
