"""The noise scale over a whole training, from a few points of it: drift and initialisation, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bigbatch.advice.history import NoisePoint
from bigbatch.advice.learner import RunLearner
from bigbatch.advice.noise import NoiseOutlook, assess_outlook, project_noise
from bigbatch.recipes import load_run


def point(step, estimate):
    return NoisePoint(step, 0.1 * step, estimate, None, 64)


def test_drift_is_measured_over_doublings_of_the_steps():
    # ln 4 per doubling, between 10, 20 and 40 steps; 39 is not a doubling away from 40, and 0 has no logarithm
    points = [point(0, 3.0), point(10, 5.0), point(20, 20.0), point(39, 1e6), point(40, 80.0)]
    found = assess_outlook(points, 3.0, [])
    assert found.drift == pytest.approx(math.sqrt((4 * 0.8**2 + 2 * math.log(4) ** 2) / 6))
    # over two doublings at once a random walk moves √2 times as far
    assert assess_outlook([points[1], points[4]], 3.0, []).drift == pytest.approx(
        math.sqrt((4 * 0.8**2 + math.log(16) ** 2 / 2) / 5)
    )
    assert assess_outlook([point(40, None)], 3.0, []).drift == pytest.approx(0.8)  # nothing known: what is usual


def test_other_initialisations_count_with_their_distance_at_the_same_step():
    points = [point(10, 10.0), point(40, 40.0)]
    found = assess_outlook(points, 3.0, [point(40, 80.0), point(20, 10.0)])  # the first one is at 20 after 20 steps
    assert found.initialisations == 3
    assert found.spread == pytest.approx(math.sqrt((4 * 0.4**2 + 2 * math.log(2) ** 2) / 6))
    assert assess_outlook(points, 3.0, None).spread == 0  # a checkpoint: its weights are given


def test_what_is_projected_is_wider_the_longer_the_training_and_centred_where_it_was_measured():
    draws = np.full(1000, 100.0)

    def spread(outlook):
        low, middle, high = np.quantile(project_noise(draws, outlook), [0.05, 0.5, 0.95])
        assert 0.7 < middle / 100 < 1.5
        return math.log(high / low) / (2 * 1.645)

    assert (project_noise(draws, NoiseOutlook(0.0, 0.8, 0, 0.0)) == 100).all()
    assert spread(NoiseOutlook(0.0, 0.8, 1, 0.4)) == pytest.approx(0.4, rel=0.1)
    one, four = spread(NoiseOutlook(1.0, 0.8, 0, 0.0)), spread(NoiseOutlook(4.0, 0.8, 0, 0.0))
    assert 0.3 < one < 0.8  # half of the training is what was measured
    assert 2 * one < four < 0.8 * 2
    assert np.isinf(project_noise(np.full(10, np.inf), NoiseOutlook(2.0, 0.8, 1, 0.4))).all()


def test_a_recipe_is_initialised_anew_and_taken_back():
    learner = RunLearner(load_run("digits", ["model=mlp", "global_batch=64"]))
    learner.step(64)
    before = {name: value.clone() for name, value in learner.model.state_dict().items()}
    with learner.undo_steps():
        assert learner.initialise(1)
        assert learner.steps == 0
        assert not any(value.equal(before[name]) for name, value in learner.model.state_dict().items())
        learner.step(64)
    assert all(value.equal(before[name]) for name, value in learner.model.state_dict().items())
    assert learner.steps == 1
