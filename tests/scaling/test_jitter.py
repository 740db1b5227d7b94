"""The slowest of N ranks: closed forms against hand-computed numbers and against random draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bigbatch.scaling.machine import Jitter, harmonic_number

EXPONENTIAL = Jitter(fraction=0.1)
NORMAL = Jitter(fraction=0.1, kind="normal")


def test_by_hand():
    # H_3 = 1 + 1/2 + 1/3 = 11/6; of two normal ranks the larger lies σ/√π above the mean
    assert EXPONENTIAL.expected_slowdown(3) == pytest.approx(1 + 0.1 * (11 / 6 - 1))
    assert NORMAL.expected_slowdown(2) == pytest.approx(1 + 0.1 / math.sqrt(math.pi), abs=2e-4)
    # half of the steps of one exponential rank are below ln 2
    assert EXPONENTIAL.slowdown_quantile(1, 0.5) == pytest.approx(1 + 0.1 * (math.log(2) - 1))
    assert NORMAL.slowdown_quantile(1, 0.5) == pytest.approx(1)


@pytest.mark.parametrize("jitter", [EXPONENTIAL, NORMAL])
def test_against_draws(jitter):
    ranks, steps = 64, 20_000
    random = np.random.default_rng(0)
    draws = random.exponential(size=(steps, ranks)) - 1 if jitter is EXPONENTIAL else random.normal(size=(steps, ranks))
    largest = 1 + 0.1 * draws.max(axis=1)
    assert jitter.expected_slowdown(ranks) == pytest.approx(largest.mean(), abs=3e-3)
    for share in (0.05, 0.95):
        assert jitter.slowdown_quantile(ranks, share) == pytest.approx(np.quantile(largest, share), abs=5e-3)


@pytest.mark.parametrize("jitter", [EXPONENTIAL, NORMAL])
def test_more_ranks_wait_longer_without_end_or_overflow(jitter):
    means = [jitter.expected_slowdown(ranks) for ranks in (1, 2, 10, 1000, 100_000, 10_000_000)]
    assert means[0] == 1
    assert means == sorted(means)
    assert jitter.slowdown_quantile(10_000_000, 0.05) < means[-1] < jitter.slowdown_quantile(10_000_000, 0.95)


def test_the_harmonic_number_is_one_function_of_two_formulas():
    exact = sum(1 / k for k in range(1, 1001))
    assert harmonic_number(1000) == pytest.approx(exact, rel=1e-12)
    assert harmonic_number(99) + 1 / 100 == pytest.approx(harmonic_number(100), rel=1e-10)


@pytest.mark.parametrize("jitter", [EXPONENTIAL, NORMAL])
@pytest.mark.parametrize("ranks", [2, 1000])
def test_steps_in_turn_are_as_unlike_as_real_ones(jitter, ranks):
    found = jitter.representative_slowdowns(ranks)
    assert np.mean(found) == pytest.approx(jitter.expected_slowdown(ranks))
    assert min(found) < jitter.slowdown_quantile(ranks, 0.1)
    assert max(found) > jitter.slowdown_quantile(ranks, 0.9)
    assert found != tuple(sorted(found))


def test_no_jitter_is_none():
    assert Jitter().representative_slowdowns(100_000) == (1.0,)
    assert Jitter().expected_slowdown(100_000) == 1
    assert Jitter().slowdown_quantile(100_000, 0.95) == 1
