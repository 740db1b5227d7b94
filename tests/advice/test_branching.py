"""The critical batch by branching: by hand, on problems without and with noise, and against a sweep of digits."""

from __future__ import annotations

import math

import pytest
import torch
from advice_learner import learner_of
from analytic import half_square, regression

from bigbatch.advice import advise_run
from bigbatch.advice.branching import Branch, branch, find_critical_batch
from bigbatch.advice.learner import RunLearner
from bigbatch.errors import Problem
from bigbatch.recipes import load_run
from bigbatch.sweeps.critical_batch import critical_batch

QUICK = {"cap": 3000, "seconds": 1.0, "seconds_per_sample": 1 / 3 / 5000}  # 5000 samples in each of three orders


def made(batch, at_half, at_end, orders=3):
    """The two smoothed losses count; a smoothed loss is the mean of two evaluations."""
    losses = [9.0, 9.0, at_half + 0.1, at_half - 0.1, 9.0, 9.0, at_end - 0.1, at_end + 0.1]
    return Branch(batch, 0.1, [[loss + 0.001 * order for loss in losses] for order in range(orders)])


def test_the_largest_batch_within_what_the_base_gained_in_its_second_half():
    # the base gained .2, from .5 to .3: up to .5 is within; .4 at 32 and .6 at 64 cross it in the middle of ln B
    found = find_critical_batch([made(16, 0.5, 0.3), made(32, 0.6, 0.4), made(64, 0.9, 0.6)], 1024, 1.0)
    assert (found.critical_batch, found.beyond) == (32, 64)
    assert found.tolerance == pytest.approx(0.2)
    assert found.estimate == pytest.approx(32 * math.sqrt(2))
    given = find_critical_batch([made(16, 0.5, 0.3), made(32, 0.6, 0.4)], 1024, 1.0, tolerance=0.05)
    assert (given.critical_batch, given.beyond) == (16, 32)
    every = find_critical_batch([made(16, 0.5, 0.3), made(32, 0.6, 0.3)], 1024, 1.0)
    assert (every.critical_batch, every.beyond) == (32, None)
    assert "32 or more" in every.said


def test_a_branch_that_diverged_is_beyond_and_a_base_that_gained_nothing_cannot_tell():
    diverged = Branch(32, 0.1, [[0.5] * 6 + [None, None]] * 3)
    assert find_critical_batch([made(16, 0.5, 0.3), diverged], 1024, 1.0).beyond == 32
    still = find_critical_batch([made(16, 0.3, 0.3), made(32, 0.3, 0.3)], 1024, 1.0)
    assert still.critical_batch is None
    assert "cannot tell" in still.said


def test_without_noise_twice_the_batch_is_half_the_training():
    """Linear regression without noise at a low learning rate: a quarter of the steps at twice the lr come half as far,
    which is where the base was after half of its samples."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(512, 4, generator=generator, dtype=torch.float64)
    model = torch.nn.Linear(4, 1, bias=False, dtype=torch.float64)
    learner = learner_of(model, (x, x @ torch.tensor([1.0, -2.0, 0.5, 3.0]).double()), lr=0.01, batch=32)
    before = learner.model.weight.detach().clone()
    found = branch(learner, **(QUICK | {"cap": 512, "seconds": 3.0}))
    assert 64 <= found.critical_batch <= 128
    assert 64 < found.estimate < 256
    assert [b.batch for b in found.branches][:3] == [32, 64, 128]
    assert found.branches[1].lr == pytest.approx(0.01 * math.sqrt(2))
    losses = [b.smoothed_loss() for b in found.branches]
    assert losses == sorted(losses)
    assert torch.equal(learner.model.weight, before)
    assert learner.steps == 0


def test_where_noise_rules_every_batch_is_as_good():
    """At a high learning rate the loss hovers at its noise, which falls with the batch: no branch is worse."""
    model, data = regression(0, noise=8.0)
    found = branch(learner_of(model, data, half_square, lr=0.02, batch=8), **QUICK, tolerance=0.5)
    assert found.beyond is None
    assert found.critical_batch == found.branches[-1].batch >= 64


def test_options_follow_the_rule_of_the_optimizer():
    learner = RunLearner(load_run("digits", ["model=mlp", "optimizer=adam", "global_batch=64"]))
    factor, options = learner.scale_options(256)
    assert factor == pytest.approx(2.0)
    assert options["betas"] == pytest.approx((0.6, 0.996))
    linear = RunLearner(load_run("digits", ['schedule={"name": "goyal", "baseline_batch": 16, "warmup_epochs": 1}']))
    with pytest.raises(Problem, match="multiplies the learning rate by 4"):
        linear.scale_options(64)  # the schedule scales by k, the optimizer's rule by √k
    model, data = regression(0)
    assert learner_of(model, data, optimizer=torch.optim.Adagrad, lr=0.1).scale_options(256) == (2.0, {})


def test_what_does_not_fit_is_told():
    learner = learner_of(*regression(0, samples=100), lr=0.1, batch=64)
    with pytest.raises(Problem, match="give more --seconds, or a smaller batch"):
        branch(learner, **(QUICK | {"cap": 100}))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_branching_agrees_with_a_sweep_of_digits_within_a_factor_of_two():
    """Samples to a loss at batches of 8 to 256, fitted, against one advice of the recipe (minutes of one core)."""
    torch.set_num_threads(1)
    needed = {batch: [samples_to(0.2, batch, seed) for seed in range(2)] for batch in (8, 16, 32, 64, 128, 256)}
    swept = critical_batch(needed)
    advice = advise_run(load_run("digits"), seconds=60.0, steps=90, branch=True)
    print(f"sweep {swept.describe()}, branching {advice.branched.said}, noise scale {advice.noise_scale:.3g}")
    assert advice.trusted == "branching"
    assert 0.5 <= advice.branched.estimate / swept.batch <= 2.0


def samples_to(target: float, batch: int, seed: int) -> int | None:
    """Until the running mean of the loss, over about a thousand samples, is below the target."""
    learner = RunLearner(load_run("digits", [f"seed={seed}"]))
    factor, _ = learner.scale_options(batch)
    keep, mean = max(0.0, 1 - batch / 1024), None
    while learner.epochs < 40:
        loss = learner.step(batch, factor * learner.baseline.lr)
        mean = loss if mean is None else keep * mean + (1 - keep) * loss
        if mean < target:
            return learner.samples
    return None
