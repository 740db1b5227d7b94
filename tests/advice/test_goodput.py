"""The arithmetic of advice, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bigbatch.advice.goodput import (
    Evidence,
    GoodputModel,
    grade_evidence,
    optimal_batch,
    round_to_power_of_two,
    time_factor,
)
from bigbatch.probes.noise_scale import quantile_interval, samples_factor

FIXED, PER_SAMPLE = 3e-3, 62.5e-6  # a step of 16 takes 4 ms, one of 64 takes 7 ms


def known(noise=(100.0,) * 50 + (144.0,) * 50, fixed=(FIXED,) * 100):
    draws = np.array(noise), np.array(fixed), np.full(100, PER_SAMPLE)
    return GoodputModel(16, (112.0, FIXED, PER_SAMPLE), draws)


def test_samples_steps_and_time_by_hand():
    # φ = 112: (112 + 64)/(112 + 16) = 1.375 times the samples, a quarter of that in steps, each 7/4 as long
    assert samples_factor(64, 16, 112.0) == pytest.approx(1.375)
    assert time_factor(64, 16, 112.0, FIXED, PER_SAMPLE) == pytest.approx(1.375 / 4 * 7 / 4)
    expected = known().expect(64, samples_now=16_000)
    steps = expected["steps"]
    assert (steps["factor"], steps["now"], steps["then"]) == pytest.approx((0.34375, 1000, 343.75))
    assert steps["interval"] == pytest.approx([0.25 * 208 / 160, 0.25 * 164 / 116])  # φ of 144 and of 100
    assert expected["samples"]["then"] == pytest.approx(22_000)
    assert expected["seconds"]["now"] == pytest.approx(4.0)
    assert expected["seconds"]["then"] == pytest.approx(343.75 * 7e-3)
    assert known().expect(64, None)["seconds"]["then"] is None


def test_the_best_batch_by_hand_is_where_goodput_peaks():
    # √(3 ms · 112 / 62.5 µs) = √5376 = 73.3; four times the noise scale gives twice the batch
    assert optimal_batch(112.0, FIXED, PER_SAMPLE) == pytest.approx(math.sqrt(5376))
    assert optimal_batch(448.0, FIXED, PER_SAMPLE) == pytest.approx(2 * math.sqrt(5376))
    sizes = np.arange(1, 2000)
    assert sizes[(1 / time_factor(sizes, 16, 112.0, FIXED, PER_SAMPLE)).argmax()] == 73
    assert (1 / time_factor(16, 16, 112.0, FIXED, PER_SAMPLE)) == pytest.approx(1.0)


def test_rounding_to_a_power_of_two_costs_at_most_three_percent():
    for noise_scale in (1.0, 48.0, 1e5):  # 48 = a/b is the sharpest peak there is
        best = optimal_batch(noise_scale, FIXED, PER_SAMPLE)
        at_best = 1 / time_factor(best, 16, noise_scale, FIXED, PER_SAMPLE)
        for off in (1 / math.sqrt(2), math.sqrt(2)):
            assert (1 / time_factor(off * best, 16, noise_scale, FIXED, PER_SAMPLE)) > 0.97 * at_best


@pytest.mark.parametrize(
    ("best", "smallest", "cap", "batch"),
    [
        (90, 4, 1437, 64),
        (91, 4, 1437, 128),
        (0.0, 4, 1437, 4),
        (0.0, 9, 1437, 16),
        (5000, 4, 1437, 1024),
        (math.inf, 4, 1024, 1024),
        (70, 4, 65, 64),
        (1.0, 9, 12, 8),  # the cap is the harder limit
    ],
)
def test_the_batch_is_a_power_of_two_within_its_limits(best, smallest, cap, batch):
    assert round_to_power_of_two(best, smallest, cap) == batch


def test_noise_without_end_costs_no_samples_and_has_no_best_batch():
    assert samples_factor(4096, 16, math.inf) == 1
    assert optimal_batch(math.inf, FIXED, PER_SAMPLE) == math.inf
    assert optimal_batch(112.0, FIXED, 0.0) == math.inf
    assert optimal_batch(math.inf, 0.0, PER_SAMPLE) == 0  # without a fixed cost no batch is faster than a small one


def test_intervals_include_the_uncertainty_of_noise_and_times_together():
    low, high = known().optimum_interval
    assert (low, high) == pytest.approx((math.sqrt(4800), math.sqrt(6912)))  # φ of 100 and of 144
    both = known(fixed=[FIXED, 4 * FIXED] * 50).optimum_interval
    assert both == pytest.approx([math.sqrt(4800), math.sqrt(4 * 6912)])
    assert known(noise=[100.0] * 90 + [math.inf] * 10).optimum_interval[1] is None
    assert quantile_interval(np.arange(1.0, 101.0), 0.9) == [5.0, 95.0]
    assert quantile_interval(np.array([0.0] * 10 + [7.0] * 90), 0.9) == [None, 7.0]  # an end of zero is unknown


GOOD = {"source": "noise scale", "critical_batch": 100.0, "interval": [50.0, 90.0], "only_lower_bound": False}
GOOD |= {"misfit": 0.04, "spread": 0.1, "steps": 200, "warmup_is_over": True, "best": 70.0, "timed": (4, 1024)}


@pytest.mark.parametrize(
    ("changed", "grade", "reason"),
    [
        ({}, "high", "known within a factor of 1.8, step times fit to 4 %"),
        ({"interval": [30.0, 90.0]}, "medium", "known only within a factor of 3"),
        ({"interval": [10.0, 90.0]}, "low", "known only within a factor of 9"),
        ({"interval": [None, 90.0]}, "low", "any up to 90"),
        ({"critical_batch": None, "interval": [None, None], "best": 0.0}, "low", "cannot tell a noise scale"),
        ({"interval": [50.0, None], "only_lower_bound": True}, "low", "only a lower bound"),
        ({"misfit": 0.2}, "medium", "differ from the line a + b·B by up to 20 %"),
        ({"misfit": 0.4}, "low", "differ from the line a + b·B by up to 40 %"),
        ({"spread": 0.5}, "medium", "the machine was busy"),
        ({"steps": 12}, "medium", "only 12 steps were trained"),
        ({"warmup_is_over": False}, "low", "the warm-up was not over"),
        ({"best": 9000.0}, "medium", "outside the timed ones (4 to 1024)"),
    ],
)
def test_the_grade_has_a_reason(changed, grade, reason):
    found, reasons = grade_evidence(Evidence(**(GOOD | changed)))
    assert found == grade
    assert len(reasons) == 1
    assert reason in reasons[0]


def test_the_worst_fault_decides_and_all_are_named():
    grade, reasons = grade_evidence(Evidence(**(GOOD | {"misfit": 0.2, "warmup_is_over": False, "spread": 1.0})))
    assert grade == "low"
    assert len(reasons) == 3
