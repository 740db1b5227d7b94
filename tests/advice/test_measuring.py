"""Times, memory, learning rates and data: what advice rests on, each by itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from bigbatch.advice import learning_rates, memory, times
from bigbatch.advice.data import gathered
from bigbatch.advice.times import StepTimes, fitted, spaced
from bigbatch.errors import Problem
from bigbatch.recipes import load_run
from bigbatch.schedules import Baseline

SIZES = np.array([16.0, 32.0, 64.0, 128.0, 256.0])


def test_a_line_is_found_again():
    assert fitted(SIZES, 3e-3 + 62.5e-6 * SIZES) == pytest.approx((3e-3, 62.5e-6))


def test_distances_count_relative_to_the_time():
    """The last step is 10 % late, which is ten times the first step: absolute squares would follow it alone."""
    seconds = 1e-4 + 1e-3 * SIZES
    seconds[-1] *= 1.1
    fixed, per_sample = fitted(SIZES, seconds)
    assert 0 <= fixed < 2e-3
    assert per_sample == pytest.approx(1.03e-3, rel=0.02)


def test_no_part_of_a_line_is_negative():
    assert fitted(SIZES, 1e-4 * SIZES**1.2)[0] == 0.0
    assert fitted(SIZES, np.array([5.0, 4.0, 3.0, 2.0, 1.0]))[1] == 0.0


def test_the_least_of_all_rounds_counts_and_its_misfit_is_the_largest():
    exact = 3e-3 + 62.5e-6 * SIZES
    found = StepTimes((16, 32, 64, 128, 256), np.stack([2 * exact, exact, 3 * exact]))
    assert found.least == pytest.approx(exact)
    assert found.misfit == pytest.approx(0, abs=1e-9)
    assert found.spread == pytest.approx(1.0)  # the median is twice the least
    fixed, per_sample = found.drawn_lines()
    assert (len(fixed), len(per_sample)) == (1000, 1000)
    assert np.median(fixed) == pytest.approx(3e-3)
    assert fixed.max() == pytest.approx(9e-3)  # the slowest round thrice
    bent = StepTimes((1, 2, 3), np.array([[1.0, 4.0, 3.0]]))
    fixed, per_sample = bent.line
    assert bent.misfit == pytest.approx(
        max(abs((fixed + per_sample * batch) / t - 1) for batch, t in ((1, 1.0), (2, 4.0), (3, 3.0)))
    )


def test_rounds_are_interleaved():
    called = []
    found = times.timed([4, 8, 16], called.append, seconds=1e-9)
    assert called == [4, 8, 16] * 4  # once to warm up, then the three rounds that there always are
    assert found.rounds.shape == (3, 3)


def test_a_given_clock_is_read_around_each_step():
    at = 0.0

    def step(batch):
        nonlocal at
        at += 2.0 + batch / 2

    found = times.timed([4, 8, 16], step, seconds=1e-9, clock=lambda: at)
    assert found.line == pytest.approx((2.0, 0.5))


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
    assert spaced(*arguments) == sizes


def test_memory_is_a_line_up_to_nine_tenths_of_what_is_free():
    assert memory.Memory(100.0, 10.0, 1000.0, "").cap == 80
    assert memory.Memory(100.0, 10.0, math.inf, "").cap is None
    assert memory.Memory(100.0, 0.0, 1000.0, "").cap is None


def test_what_a_sample_holds_during_a_step_is_seen_whatever_the_process_held_before():
    weight = torch.zeros(1000, requires_grad=True)

    def backward(samples):
        x = torch.ones(samples, 1000)  # 4000 bytes a sample
        y = x * weight  # 4000 more, and x is kept for the backward pass
        y.square().sum().backward()  # keeps y, makes as much again, its gradient and that of the product
        weight.grad = None

    torch.zeros(30_000_000)  # a high-water mark that has to be seen past
    found = memory.measured(torch.device("cpu"), backward, 10, 40)
    assert 4 * 4000 <= found.bytes_per_sample <= 7 * 4000
    assert found.bytes_per_sample % 4000 == pytest.approx(0, abs=64)
    assert found.cap == int((0.9 * found.available_bytes - found.fixed_bytes) / found.bytes_per_sample)
    assert "10 and at 40 samples" in found.method


def test_lrs_of_three_rules_by_hand():
    """k = 16: LEGW 4 times the learning rate and 16 times the warm-up; linear 16 times the learning rate."""
    layers = {
        "a.weight": {"weight": 2.0, "signal": 0.01, "noise": 40.96, "dimensions": 2},  # ‖g‖² = .01 + .02 = .03
        "b.weight": {"weight": 3.0, "signal": 0.05, "noise": 81.92, "dimensions": 4},  # ‖g‖² = .05 + .04 = .09
        "b.bias": {"weight": 9.0, "signal": 1.0, "noise": 1.0, "dimensions": 1},
    }
    found = learning_rates.at(2048, Baseline(0.1, 128, 0.1), layers, weight_decay=0.0, total_epochs=4.0)
    assert found["legw"] == pytest.approx({"lr": 0.4, "warmup_epochs": 1.6, "too_long": False})
    assert found["linear"] == pytest.approx({"lr": 1.6, "warmup_epochs": 5.0, "too_long": True})
    # ‖w‖/‖g‖ is 2/√.03 = 11.547 and 3/.3 = 10: the median 10.774
    assert found["lars"]["trust_coefficient"] == pytest.approx(1 / 10.7735, rel=1e-4)
    with_decay = learning_rates.trust_coefficient(2048, layers, weight_decay=0.1)
    assert with_decay == pytest.approx(2 / (2 / (math.sqrt(0.03) + 0.2) + 3 / (0.3 + 0.3)))


@pytest.mark.parametrize(
    ("recipe", "settings", "baseline", "warmup_epochs"),
    [
        ("digits", [], Baseline(0.02, 16, 0.0), 0.0),
        ("legw_mnist", ["global_batch=1024"], Baseline(0.1, 128, 0.1), 0.8),
        ("digits", ['schedule={"name": "goyal", "baseline_batch": 32}'], Baseline(0.02, 32, 5.0), 5.0),
        (
            "digits",
            ['schedule={"name": "composed", "warmup": {"kind": "gradual", "epochs": 2}}'],
            Baseline(0.02, 16, 2.0),
            2.0,
        ),
    ],
)
def test_the_baseline_is_the_runs_own(recipe, settings, baseline, warmup_epochs):
    run = load_run(recipe, settings)
    now = run.global_batch.global_batch
    assert learning_rates.baseline_of(run, now) == baseline
    assert learning_rates.warmup_epochs(run, now) == pytest.approx(warmup_epochs)


X, Y = torch.arange(40.0).view(20, 2), torch.arange(20)


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        TensorDataset(X, Y),
        DataLoader(TensorDataset(X, Y), batch_size=8),
        DataLoader(TensorDataset(X, Y), batch_size=None),  # sample by sample
        ((x, y) for x, y in zip(X.split(7), Y.split(7), strict=True)),
    ],
    ids=["tensors", "dataset", "loader", "samples", "generator"],
)
def test_samples_of_any_kind_have_numbers(data):
    found, notes = gathered(data)
    inputs, targets = found.fetch(torch.tensor([3, 17]))
    assert len(found) == 20
    assert (inputs.tolist(), targets.tolist(), notes) == ([[6.0, 7.0], [34.0, 35.0]], [3, 17], [])


def test_what_never_ends_is_read_as_far_as_it_is_needed_and_says_so():
    def forever():
        while True:
            yield {"x": torch.zeros(1000, 3), "z": torch.ones(1000)}, torch.zeros(1000)

    found, notes = gathered(forever())
    assert len(found) == 17_000
    assert set(found.fetch(torch.tensor([0]))[0]) == {"x", "z"}
    assert notes == ["only the first 17,000 samples of the generator were read, and count as all of them"]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (iter([]), "gave no samples: give one that yields"),
        (iter([torch.zeros(3)]), "has to yield pairs of"),
        (3, "int cannot be probed with"),
    ],
)
def test_what_is_no_data_is_told(data, sentence):
    with pytest.raises(Problem, match=sentence):
        gathered(data)
