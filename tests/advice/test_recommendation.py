"""φ and B* of a regression that can be worked out on paper, with step times that are given."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from advice_learner import STANDSTILL, found_of, learner_of
from analytic import DELTA, half_square, regression

from bigbatch.advice import advise
from bigbatch.advice.branching import Branch, compare_losses
from bigbatch.advice.costs import MemoryUse
from bigbatch.advice.noise import sample_noise
from bigbatch.advice.recommendation import recommend
from bigbatch.advice.report import format_optimum

FIXED, PER_SAMPLE = 3e-3, 62.5e-6  # a/b = 48: B* = √(48 · 33.67) = 40.2


def noise_scale_of(model, data):
    """φ of the data set itself, from all of its gradients: what a training on it meets."""
    x, y = data
    errors = (x @ model.weight.detach().T).squeeze(1) - y
    gradients = errors[:, None] * x
    mean = gradients.mean(dim=0)
    return float(gradients.var(dim=0).sum() / (mean @ mean))


def inside(value, interval):
    low, high = interval
    return low <= value <= (math.inf if high is None else high)


def test_the_noise_scale_of_a_data_set_lies_in_its_own_interval():
    """90 % intervals. Taken for batches of an endless population, they held the truth of 4 in 10 such data sets."""
    held = 0
    for seed in range(60):
        model, data = regression(seed, samples=1000, delta=DELTA / 2)
        found = sample_noise(learner_of(model, data, seed=seed), seconds=60.0)
        held += inside(noise_scale_of(model, data), found.interval)
    assert held >= 51  # 85 %


def test_the_best_batch_follows_from_the_noise_scale_and_the_times():
    model, data = regression(0)
    learner = learner_of(model, data)
    advice = recommend(learner, found_of(learner, FIXED, PER_SAMPLE))
    assert advice.optimum == pytest.approx(math.sqrt(48 * advice.noise_scale))
    # the times are exact, so that only the noise is uncertain
    assert advice.interval == pytest.approx([math.sqrt(48 * end) for end in advice.noise_scale_interval])
    assert advice.batch in (32, 64)


def test_a_batch_that_is_no_faster_than_the_present_one_is_not_advised():
    model, data = regression(0)
    best = recommend(learner_of(model, data), found_of(learner_of(model, data), FIXED, PER_SAMPLE)).optimum
    learner = learner_of(model, data, batch=round(best))
    advice = recommend(learner, found_of(learner, FIXED, PER_SAMPLE))
    assert advice.batch == round(best)
    assert advice.fraction_of_best == pytest.approx(1.0, abs=0.01)


def test_an_answer_by_hand():
    model, data = regression(0)
    learner = learner_of(model, data, epochs=2.0)
    advice = recommend(learner, found_of(learner, FIXED, PER_SAMPLE))
    phi = advice.noise_scale
    factor = (phi + advice.batch) / (phi + 64)
    assert advice.expected["samples"]["factor"] == pytest.approx(factor)
    assert advice.expected["steps"]["now"] == pytest.approx(2 * 3000 / 64)
    assert advice.expected["steps"]["then"] == pytest.approx(2 * 3000 * factor / advice.batch)
    assert advice.expected["seconds"]["now"] == pytest.approx(2 * 3000 / 64 * 7e-3)  # a step of 64 takes 7 ms
    by_batch = {row["batch"]: row["value"] for row in advice.goodput}
    assert by_batch[64] == pytest.approx(1.0)
    assert max(by_batch, key=by_batch.get) == pytest.approx(advice.optimum, rel=0.15)
    assert advice.step_times["misfit"] == pytest.approx(0, abs=1e-9)
    # a single tensor: its noise scale is the whole one, and ‖g‖² of a batch is |G|² + trΣ/B
    (layer,) = advice.layers
    assert layer["noise_scale"] == pytest.approx(advice.over_training[-1].estimate)
    assert layer["gradient"] == pytest.approx(math.sqrt(0.9 + 30.3 / 64), rel=0.1)


def test_batches_grow_until_the_noise_scale_is_known():
    model, data = regression(0, samples=20_000, delta=DELTA / 5)  # φ is about 680, ten times the batch
    found = sample_noise(learner_of(model, data), seconds=60.0)
    assert found.batch > 64
    assert not found.only_lower_bound
    truth = (6 * (0.036 + 4) + 0.036) / 0.036
    low, high = found.interval
    assert low <= truth <= high
    assert high <= 1.5 * low


def test_where_the_data_cannot_tell_there_is_only_a_lower_bound_and_it_is_said():
    model, data = regression(1, samples=400)
    with torch.no_grad():  # where the gradient of all samples is zero, so that φ has no end
        model.weight.copy_(torch.linalg.lstsq(data[0], data[1][:, None]).solution.T)
    advice = advise(model, half_square, data, batch=16, seconds=2.0, **STANDSTILL)
    assert advice.only_lower_bound
    assert advice.grade == "low"
    assert advice.interval[1] is None
    assert advice.noise_scale == advice.over_training[-1].interval[0] > 16
    assert "only a lower bound is known of the critical batch by noise scale" in advice.reasons[0]
    assert any("only a lower bound" in warning for warning in advice.warnings)


def test_a_step_without_fixed_cost_wants_the_smallest_batch_and_one_without_growth_the_largest():
    model, data = regression(0)
    learner = learner_of(model, data)
    small = recommend(learner, found_of(learner, 0.0, 1e-4))
    assert (small.batch, small.limited_by) == (16, "times")  # no smaller one was timed
    assert small.optimum is None  # not zero
    assert format_optimum(small) == "at most 16, the smallest that was timed"
    assert any("--batches times smaller ones" in warning for warning in small.warnings)
    large = recommend(learner, found_of(learner, 1e-2, 0.0))
    assert (large.batch, large.limited_by) == (2048, "data")


def test_memory_caps_what_goes_in_one_piece():
    model, data = regression(0)
    learner = learner_of(model, data)
    found = found_of(learner, 1.0, 1e-6)  # B* is about 5800
    found = replace(found, memory=MemoryUse(0.0, 1000.0, 500_000.0, "by hand"))
    advice = recommend(learner, found)
    assert (advice.memory_cap, advice.batch, advice.limited_by) == (450, 256, "memory")
    assert any("beyond what memory allows" in warning for warning in advice.warnings)


@pytest.mark.parametrize(
    ("pairs", "verdict"),
    [
        # differences 1, 2, 3, 4, 5: 3 ± 2.132·1.5811/√5 = 3 ± 1.507
        ([(0.0, 1.0), (0.0, 2.0), (0.0, 3.0), (0.0, 4.0), (0.0, 5.0)], "worse"),
        ([(1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (4.0, 0.0), (5.0, 0.0)], "better"),
        ([(0.0, 1.0), (0.0, -2.0), (0.0, 3.0), (0.0, -4.0), (0.0, 5.0)], "no significant difference"),
        ([(0.0, 1.0), (0.0, None)], "worse"),
        ([(None, 1.0), (0.0, None)], "undecided"),
    ],
)
def test_two_batches_compared_by_hand(pairs, verdict):
    branches = [Branch(batch, 0.1, [[pair[n]] for pair in pairs]) for n, batch in enumerate((64, 128))]
    found = compare_losses(branches, 1024, loss_before=1.0)
    assert found["verdict"] == verdict
    if found["difference"] == pytest.approx(3.0) and verdict == "worse":
        assert found["interval"] == pytest.approx([1.4926, 4.5074], abs=1e-3)


def test_verifying_sees_that_twice_a_batch_far_beyond_the_noise_is_worse():
    """Without noise (φ is 0) half the steps at √2 times the lr come less far, for every seed."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(512, 4, generator=generator, dtype=torch.float64)
    y = x @ torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    model = torch.nn.Linear(4, 1, bias=False, dtype=torch.float64)
    about = {"optimizer": "sgd", "lr": 0.01, "batch": 64, "steps": 2, "batches": [8, 16, 64], "seconds": 4.0}
    before = model.weight.detach().clone()
    advice = advise(model, half_square, (x, y), verify=True, **about)
    found = advice.verified
    smaller, larger = found["branches"]
    assert larger.batch == 2 * smaller.batch
    assert [smaller.lr, larger.lr] == pytest.approx(
        [0.01 * math.sqrt(branch.batch / 64) for branch in (smaller, larger)]
    )
    assert found["verdict"] == "worse"
    assert found["difference"] > 0
    assert [len(branch.losses) for branch in (smaller, larger)] == [5, 5]
    assert all(order[-1] < found["loss_before"] for order in smaller.losses)
    assert torch.equal(model.weight, before)
