"""Schedule-Free SGD and AdamW by hand and against a float64 oracle that keeps x, y and z; evaluation at x."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small import final_weights, same_bits, small_run
from torch import nn

import bigbatch
from bigbatch import engines, optim, parts
from bigbatch.artifacts.folder import Folder
from bigbatch.training.assembly import AssembledRun
from bigbatch.training.batches import Split
from bigbatch.training.evaluate import evaluate, evaluation_weights
from bigbatch.training.step import take_step

NET = {"name": "outside:Net", "dropout": 0.0}  # BatchNorm


def train(name, start, gradients, lrs, **options):
    """The weights in training after the last step, and those to evaluate."""
    weight = nn.Parameter(torch.tensor(start, dtype=torch.float64))
    optimizer = optim.build(parts.configure("optim", {"name": name, **options}), [("weight", weight)])
    for gradient, lr in zip(gradients, lrs, strict=True):
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
    y = weight.detach().clone().numpy()
    assert isinstance(optimizer, optim.HasModes)
    optimizer.eval()
    return y, weight.detach().numpy()


def oracle(start, gradients, lrs, *, beta, weight_decay, beta2=None, eps=0.0):
    """Algorithm 1 of the paper; with beta2, the AdamW of its appendix. c is the weight lr² over the sum of weights."""
    x = y = z = np.array(start)
    v, weights = np.zeros_like(z), 0.0
    for number, (g, lr) in enumerate(zip(gradients, lrs, strict=True), 1):
        if beta2 is not None:
            v = beta2 * v + (1 - beta2) * np.square(g)
            g = g / (np.sqrt(v / (1 - beta2**number)) + eps)
        z = z - lr * (g + weight_decay * y)
        weights += max(lrs[:number]) ** 2
        c = max(lrs[:number]) ** 2 / weights
        x = (1 - c) * x + c * z
        y = (1 - beta) * z + beta * x
    return y, x


def test_two_steps_of_sgd_by_hand():
    # z = 4 − .5·2 = 3, c = 1: x = y = 3. Then z = 3 − .5·(−4) = 5, c = ½: x = 4, y = .25·5 + .75·4
    y, x = train("schedule_free_sgd", [4.0], [[2.0], [-4.0]], [0.5, 0.5], momentum=0.75)
    assert (x.item(), y.item()) == pytest.approx((4.0, 4.25))


@pytest.mark.parametrize("name", ["schedule_free_sgd", "schedule_free_adamw"])
def test_follows_its_oracle(name):
    rng = np.random.default_rng(0)
    start, gradients, lrs = rng.normal(size=(3, 2)), rng.normal(size=(5, 3, 2)), [0.1, 0.2, 0.3, 0.3, 0.2]
    adam = {"betas": (0.8, 0.95), "eps": 1e-3} if name.endswith("adamw") else {"momentum": 0.8}
    found = train(name, start, gradients, lrs, weight_decay=0.1, **adam)
    second = {"beta2": 0.95, "eps": 1e-3} if name.endswith("adamw") else {}
    expected = oracle(start, gradients, lrs, beta=0.8, weight_decay=0.1, **second)
    np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_adamw_scales_without_touching_the_interpolation():
    run = small_run(optimizer={"name": "schedule_free_adamw", "lr": 0.002, "weight_decay": 0.1}).at_batch(1024)
    assert run.optimizer.betas == (0.9, pytest.approx(0.999**4))
    assert (run.optimizer.lr, run.optimizer.weight_decay) == pytest.approx((0.004, 0.2))


@pytest.fixture
def assembled():
    run = small_run(model=NET, optimizer={"name": "schedule_free_sgd", "lr": 0.5}, batchnorm_group=64)
    found = AssembledRun(run, engines.start(run.engine))
    found.add_optimizer(Split(1, 64, whole_groups=True))
    for _ in range(8):
        batch = found.batches.next(found.progress, 256, found.split)
        take_step(found, batch, found.counter.position(found.progress, 256, batch.count))
    return found


def test_evaluation_is_at_the_average_with_statistics_of_its_own(assembled):
    model, optimizer = assembled.model, assembled.optimizer
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first = model.layers[1].weight
    with evaluation_weights(assembled):
        expected = before["layers.1.weight"].lerp(optimizer.state[first]["z"], 1 - 1 / 0.9)
        torch.testing.assert_close(first.detach(), expected)
        # the mean over the training samples of what the first layer now gives; before it was that of other weights
        train = assembled.dataset.train
        inputs, _ = train.fetch(torch.arange(len(train)))
        with torch.no_grad():
            mean = model.layers[1](inputs.flatten(1)).mean(0)
        torch.testing.assert_close(model.layers[2].running_mean, mean, rtol=1e-3, atol=1e-4)
        assert (before["layers.2.running_mean"] - mean).abs().max() > 1e-2
    assert same_bits(before, model.state_dict())
    assert optimizer.param_groups[0]["train_mode"]


def test_the_measures_are_those_of_the_average(assembled):
    found = evaluate(assembled)
    with evaluation_weights(assembled), torch.no_grad():
        inputs, targets = assembled.dataset.test.fetch(torch.arange(len(assembled.dataset.test)))
        accuracy = (assembled.model.eval()(inputs).argmax(1) == targets).float().mean()
    assembled.model.train()
    assert found["test_accuracy"] == pytest.approx(accuracy.item())
    assert accuracy > 0.5


@pytest.mark.parametrize("name", ["schedule_free_sgd", "schedule_free_adamw"])
def test_evaluations_do_not_change_the_training(name, tmp_path):
    once = small_run(model=NET, optimizer={"name": name, "lr": 0.01}, batchnorm_group=64)
    often = once.with_settings(["evaluations_per_epoch=3"])
    for run in (once, often):
        bigbatch.train(run, runs_dir=tmp_path)
    assert same_bits(*(final_weights(Folder(tmp_path / run.folder_name)) for run in (once, often)))
