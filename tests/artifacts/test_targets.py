from __future__ import annotations

import pytest

from bigbatch.artifacts.targets import Target, first_crossing
from bigbatch.errors import Problem

EVALUATIONS = [
    {"samples": 1000, "step": 10, "test_accuracy": 0.90, "test_loss": 0.5, "seconds": 3.0},
    {"samples": 2000, "step": 20, "test_accuracy": 0.96, "test_loss": 0.2, "seconds": 5.0},
    {"samples": 4000, "step": 24, "test_accuracy": 0.95, "test_loss": 0.3, "seconds": 9.0},
    {"samples": 6000, "step": 28, "test_accuracy": 0.99, "test_loss": 0.1, "seconds": 13.0},
]


def test_an_accuracy_is_crossed_upwards_between_two_evaluations():
    found = first_crossing(EVALUATIONS, Target("test_accuracy", 0.94))  # 4/6 of the way from .90 to .96
    assert found is not None
    assert (found.samples, found.steps) == (pytest.approx(1666.667, abs=0.001), pytest.approx(16.6667, abs=0.001))
    assert found.seconds == pytest.approx(3 + 2 * 4 / 6)
    assert not found.is_upper_bound


def test_a_loss_is_crossed_downwards_and_steps_follow_a_growing_batch():
    found = first_crossing(EVALUATIONS, Target("test_loss", 0.15))  # 3/4 of the way from .3 to .1, not from .2
    assert found is not None
    assert (found.samples, found.steps, found.seconds) == (
        pytest.approx(5500),
        pytest.approx(27),
        pytest.approx(12),
    )


def test_a_target_that_is_never_reached_has_no_crossing():
    assert first_crossing(EVALUATIONS, Target("test_accuracy", 0.995)) is None
    assert first_crossing([], Target("test_loss", 0.1)) is None
    assert first_crossing(EVALUATIONS, Target("train_loss", 0.1)) is None


def test_a_target_that_the_first_evaluation_has_passed_is_an_upper_bound():
    found = first_crossing(EVALUATIONS, Target("test_accuracy", 0.5))
    assert found is not None
    assert (found.samples, found.steps, found.seconds, found.is_upper_bound) == (1000, 10, 3.0, True)


def test_the_training_loss_is_that_of_the_weights_before_the_step():
    # Windows of one step: .9·20 = 18 > 10. The losses 2, 1, 0 belong to 0, 10 and 20 samples: 0.5 is at 15 samples,
    # where a reader of the rows as they are would say 25.
    rows = [
        {"samples": 10 * step, "step": step, "train_loss": 3.0 - step, "global_batch": 10, "train_accuracy": 0.0}
        for step in (1, 2, 3)
    ]
    found = first_crossing(rows, Target("train_loss", 0.5))
    assert found is not None
    assert (found.samples, found.steps, found.seconds) == (pytest.approx(15), pytest.approx(1.5), None)


def test_the_training_loss_is_a_mean_over_the_last_tenth_of_the_samples():
    # 40 steps of one sample with the loss 1, 0, 1, 0 ...: after step 31, .9·31 = 27.9, the window holds steps 28-31.
    rows = [{"samples": n, "step": n, "train_loss": float(n % 2), "global_batch": 1} for n in range(1, 41)]
    rows.append({"samples": 41, "step": 41, "train_loss": None, "global_batch": 1, "diverged": True})
    found = first_crossing(rows, Target("train_loss", 0.4))
    assert found is not None
    assert found.samples == pytest.approx(0.6)  # the first two steps are windows of one: from 1 at 0 to 0 at 1
    smooth = first_crossing([row for row in rows if row["samples"] > 20], Target("train_loss", 0.5))
    # steps 21 (1), 21-22 (.5 at the mean of 20 and 21 samples before them)
    assert smooth is not None
    assert smooth.samples == pytest.approx(20.5)


def test_targets_are_parsed_and_wrong_ones_refused_in_a_sentence():
    assert Target.parse("test_accuracy=0.98") == Target("test_accuracy", 0.98)
    assert str(Target.parse("test_perplexity=120")) == "test_perplexity=120"
    assert Target.parse("test_accuracy_ema=0.5").goes_up
    for text, sentence in {
        "0.98": "is not a setting",
        "accuracy=0.98": "no metric 'accuracy'",
        "test_accuracy=98": "fraction above 0 and up to 1",
        "test_loss=-1": "must be above 0",
        "test_loss=low": "does not end in a number",
        "test_loss=Infinity": "must be above 0",
    }.items():
        with pytest.raises(Problem, match=sentence):
            Target.parse(text)
