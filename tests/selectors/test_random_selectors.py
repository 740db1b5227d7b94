"""InfoBatch and gradient noise: by hand, unbiased, and the same on any number of ranks and after a resume."""

from __future__ import annotations

import pytest
import torch
from small import small_run

from bigbatch import engines, parts, selectors
from bigbatch.position import Position
from bigbatch.selectors.info_batch import info_batch
from bigbatch.training.assembly import AssembledRun
from bigbatch.training.batches import Split

NOISE = {"name": "gradient_noise", "noise_batch": 64}


def draw(selector, count=256, samples=0, epochs=1.0, losses=None):
    config = parts.configure("selectors", selector)
    losses = torch.zeros(count, dtype=torch.float64) if losses is None else losses
    return selectors.weights(losses, config, Position(epochs, 10, count, samples=samples))


def test_info_batch_by_hand():
    # mean 2.5: 1 and 2 are below it. r = .75: one of them is drawn out, the other counts four times.
    losses, draws = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0.7, 0.8, 0.1, 0.9])
    assert info_batch(losses, draws, 0.75).tolist() == [0, 4, 1, 1]


def test_info_batch_keeps_the_expected_loss_and_what_is_not_finite():
    losses = torch.arange(100, dtype=torch.float64)
    means = [(draw("info_batch", samples=step, losses=losses) * losses).mean() for step in range(2000)]
    spread = torch.stack(means).std() / 2000**0.5
    assert abs(torch.stack(means).mean() - losses.mean()) < 4 * spread
    assert spread > 0
    losses[3], losses[4] = torch.nan, torch.inf
    assert draw("info_batch", losses=losses)[[3, 4]].tolist() == [1, 1]


def test_info_batch_prunes_until_the_last_eighth():
    losses = torch.arange(100, dtype=torch.float64)
    assert 20 < draw("info_batch", losses=losses, epochs=8.7).eq(0).sum() < 30
    assert draw("info_batch", losses=losses, epochs=8.75).eq(1).all()


@pytest.mark.parametrize("distribution", ["gaussian", "bernoulli"])
def test_noise_has_mean_one_and_the_variance_of_the_smaller_batch(distribution):
    # 256 samples with the noise of 64: the variance of a weight is 256/64 − 1 = 3
    weights = torch.stack([draw(NOISE | {"distribution": distribution}, samples=step) for step in range(400)])
    assert weights.mean().item() == pytest.approx(1, abs=0.03)
    assert weights.var().item() == pytest.approx(3, rel=0.05)
    # the mean of 256 values then varies as the mean of 64 does: v/64 = (1 + 3)·v/256
    values = torch.randn(400, 256, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert (weights * values).mean(1).var().item() == pytest.approx(1 / 64, rel=0.25)


def test_no_noise_is_added_to_a_small_batch():
    assert draw(NOISE, count=64).eq(1).all()
    assert draw(NOISE | {"distribution": "bernoulli"}, count=32).eq(1).all()


@pytest.mark.parametrize("selector", [NOISE, {"name": "info_batch"}])
def test_draws_depend_on_the_samples_seen_and_the_seed_alone(selector):
    losses = torch.rand(256, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    first = draw(selector, samples=512, losses=losses)
    assert first.equal(draw(selector, samples=512, losses=losses))
    assert not first.equal(draw(selector, samples=768, losses=losses))
    assert not first.equal(draw(selector | {"seed": 1}, samples=512, losses=losses))


@pytest.mark.parametrize("selector", [NOISE, {"name": "info_batch"}, {"name": "info_batch", "passes": "two"}])
def test_the_gradient_is_that_of_the_weighted_losses_however_the_batch_is_split(selector):
    found = []
    for micro_batch in (256, 60):
        run = small_run(selector=selector, dtype="float64")
        assembled = AssembledRun(run, engines.start(run.engine))
        assembled.add_optimizer(Split(1, micro_batch))
        batch = assembled.batches.next(assembled.progress, 256, assembled.split)
        position = assembled.counter.position(assembled.progress, 256, batch.count)
        sums = assembled.gradient.compute(batch, position)
        found.append([p.grad.clone() for p in assembled.model.parameters()])
    inputs, targets = assembled.dataset.train.fetch(batch.indices)
    losses = torch.nn.functional.cross_entropy(assembled.model(inputs.double()), targets, reduction="none")
    weights = selectors.weights(losses, run.selector, position)
    expected = torch.autograd.grad((weights * losses).sum() / 256, list(assembled.model.parameters()))
    assert sums.kept == weights.count_nonzero()
    for gradients in found:
        for gradient, one in zip(gradients, expected, strict=True):
            torch.testing.assert_close(gradient, one, rtol=1e-9, atol=1e-12)
