"""Every file in bigbatch/optim keeps the contract of an optimizer, and learns to read digits."""

from __future__ import annotations

import functools
import io

import pytest
import torch
from torch import nn

from bigbatch import optim, parts
from bigbatch.errors import Problem

NAMES = parts.names("optim")
EPOCHS = 12
BATCH = 64


@functools.cache
def digits():
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return images[order[:1400]], labels[order[:1400]], images[order[1400:]], labels[order[1400:]]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def train(optimizer, model, epochs=EPOCHS):
    images, labels, _, _ = digits()
    for epoch in range(epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(BATCH):
            optimizer.zero_grad()

            def loss(batch=batch):
                return nn.functional.cross_entropy(model(images[batch]), labels[batch])

            if getattr(optimizer, "needs_closure", False):
                optimizer.step(loss)
            else:
                loss().backward()
                optimizer.step()


def accuracy(model):
    _, _, images, labels = digits()
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


@pytest.mark.parametrize("name", NAMES)
def test_defaults_learn_digits(name):
    model = network()
    # the paper's trust coefficient goes with learning rates of 2 to 40
    options = {"trust_coefficient": 0.02} if name == "lars" else {}
    config = parts.configure("optim", {"name": name, **options})
    train(optim.build(config, list(model.named_parameters())), model)
    assert accuracy(model) > 0.9


def test_measured_curvature_learns_digits():
    model = network()
    config = parts.configure("optim", {"name": "curvature", "hessian": "hutchinson", "lr": 0.5})
    train(optim.build(config, list(model.named_parameters())), model)
    assert accuracy(model) > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_describes_itself_in_one_sentence(name):
    assert parts.summary("optim", name).endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_lr_and_weight_decay_are_options_that_reach_every_group(name):
    config = parts.configure("optim", {"name": name, "lr": 0.25, "weight_decay": 0.125})
    optimizer = optim.build(config, list(network().named_parameters()))
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert {(group["lr"], group["weight_decay"]) for group in optimizer.param_groups} == {(0.25, 0.125)}


@pytest.mark.parametrize("name", NAMES)
def test_every_option_of_the_config_reaches_the_optimizer(name):
    config = parts.configure("optim", name)
    optimizer = optim.build(config, list(network().named_parameters()))
    for option, value in config.model_dump(exclude={"name"}).items():
        found = optimizer.param_groups[0].get(option, getattr(optimizer, option, None))
        assert found == value, option


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wrong", [{"lr": -1}, {"lr": float("nan")}, {"weight_decay": -0.1}, {"lrr": 0.1}])
def test_wrong_options_are_refused(name, wrong):
    with pytest.raises(Problem, match=rf"optimizer '{name}'.*{next(iter(wrong))}"):
        parts.configure("optim", {"name": name, **wrong})


@pytest.mark.parametrize("name", NAMES)
def test_resumes_bit_for_bit_from_a_safe_file(name):
    def fresh():
        model = network()
        return model, optim.build(parts.configure("optim", name), list(model.named_parameters()))

    model, optimizer = fresh()
    train(optimizer, model, epochs=1)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    train(optimizer, model, epochs=1)

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other, restored = fresh()
    other.load_state_dict(saved["model"])
    restored.load_state_dict(saved["optimizer"])
    train(restored, other, epochs=1)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_an_optimizer_from_outside_is_built_with_its_options():
    config = parts.configure("optim", {"name": "torch.optim:NAdam", "lr": 0.01})
    optimizer = optim.build(config, list(network().named_parameters()))
    assert isinstance(optimizer, torch.optim.NAdam)
    assert optimizer.param_groups[0]["lr"] == 0.01


def test_classes_are_offered_by_the_package():
    from bigbatch.optim import LAMB, LARS, Curvature, MedianCurvature, PercentDelta

    assert all(
        issubclass(kind, torch.optim.Optimizer) for kind in (LAMB, LARS, Curvature, MedianCurvature, PercentDelta)
    )
    with pytest.raises(AttributeError, match="has no attribute 'LARSS'"):
        _ = optim.LARSS
