"""Step times with a line through them, and memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bigbatch.advice import costs
from bigbatch.advice.costs import MemoryUse, StepTimes, choose_batches, fit_line

SIZES = np.array([16.0, 32.0, 64.0, 128.0, 256.0])


def test_a_line_is_found_again():
    assert fit_line(SIZES, 3e-3 + 62.5e-6 * SIZES) == pytest.approx((3e-3, 62.5e-6))


def test_distances_count_relative_to_the_time():
    """The last step is 10 % late, which is ten times the first step: absolute squares would follow it alone."""
    seconds = 1e-4 + 1e-3 * SIZES
    seconds[-1] *= 1.1
    fixed, per_sample = fit_line(SIZES, seconds)
    assert 0 <= fixed < 2e-3
    assert per_sample == pytest.approx(1.03e-3, rel=0.02)


def test_no_part_of_a_line_is_negative():
    assert fit_line(SIZES, 1e-4 * SIZES**1.2)[0] == 0.0
    assert fit_line(SIZES, np.array([5.0, 4.0, 3.0, 2.0, 1.0]))[1] == 0.0


def test_the_least_of_all_rounds_counts_and_its_misfit_is_the_largest():
    exact = 3e-3 + 62.5e-6 * SIZES
    found = StepTimes.fit((16, 32, 64, 128, 256), np.stack([2 * exact, exact, 3 * exact]))
    assert found.seconds == pytest.approx(exact)
    assert found.misfit == pytest.approx(0, abs=1e-9)
    assert found.spread == pytest.approx(1.0)  # the median is twice the least
    fixed, per_sample = found.bootstrap_lines()
    assert (len(fixed), len(per_sample)) == (1000, 1000)
    assert np.median(fixed) == pytest.approx(3e-3)
    assert fixed.max() == pytest.approx(9e-3)  # the slowest round thrice
    bent = StepTimes.fit((1, 2, 3), np.array([[1.0, 4.0, 3.0]]))
    fixed, per_sample = bent.fixed_seconds, bent.seconds_per_sample
    assert bent.misfit == pytest.approx(
        max(abs((fixed + per_sample * batch) / t - 1) for batch, t in ((1, 1.0), (2, 4.0), (3, 3.0)))
    )


def test_rounds_are_interleaved():
    called = []
    found = costs.time_steps([4, 8, 16], called.append, seconds=1e-9)
    assert called == [4, 8, 16] * 4  # once to warm up, then the three rounds that there always are
    assert np.shape(found.rounds) == (3, 3)


def test_a_given_clock_is_read_around_each_step():
    at = 0.0

    def step(batch):
        nonlocal at
        at += 2.0 + batch / 2

    found = costs.time_steps([4, 8, 16], step, seconds=1e-9, clock=lambda: at)
    assert (found.fixed_seconds, found.seconds_per_sample) == pytest.approx((2.0, 0.5))


@pytest.mark.parametrize(
    ("arguments", "sizes"),
    [
        ((16, 1437, 1e-5, 30.0), (4, 16, 64, 256, 1024)),
        ((128, 50_000, 2e-3, 30.0), (32, 64, 128, 256, 512)),  # time for 1900 samples in a round, no more
        ((128, 50_000, 1e-5, 30.0), (32, 128, 512, 2048, 8192)),
        ((64, 100, 1e-5, 30.0), (3, 7, 17, 42, 100)),  # the data is the limit
    ],
)
def test_five_batches_to_time(arguments, sizes):
    assert choose_batches(*arguments) == sizes


def test_memory_is_a_line_up_to_nine_tenths_of_what_is_free():
    assert MemoryUse(100.0, 10.0, 1000.0, "").cap == 80
    assert MemoryUse(100.0, 10.0, None, "").cap is None
    assert MemoryUse(100.0, 0.0, 1000.0, "").cap is None


def test_what_a_sample_holds_during_a_step_is_seen_whatever_the_process_held_before():
    weight = torch.zeros(1000, requires_grad=True)

    def backward(samples):
        x = torch.ones(samples, 1000)  # 4000 bytes a sample
        y = x * weight  # 4000 more, and x is kept for the backward pass
        y.square().sum().backward()  # keeps y, makes as much again, its gradient and that of the product
        weight.grad = None

    torch.zeros(30_000_000)  # a high-water mark that has to be seen past
    found = costs.measure_memory(torch.device("cpu"), backward, 10, 40)
    assert 4 * 4000 <= found.bytes_per_sample <= 7 * 4000
    assert found.bytes_per_sample % 4000 == pytest.approx(0, abs=64)
    assert found.cap == int((0.9 * found.available_bytes - found.fixed_bytes) / found.bytes_per_sample)
    assert "10 and at 40 samples" in found.method
