"""The contract of a model, asked of every file in bigbatch/models: a new one is found unasked."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from bigbatch import models, parts
from bigbatch.datasets import Dataset, sha256
from bigbatch.errors import Problem

SAMPLES = 4
CLASSES = 5
# options that make a heavy model light enough for a test; others are built as they come
LIGHT = {
    "alexnet": {"variant": "cifar"},
    "resnet": {"depth": 50, "width": 0.125},
    "lstm_words": {"embedding": 8, "hidden": 8},
}


@dataclass(frozen=True)
class TinySamples:
    inputs: Tensor
    targets: Tensor
    lazy: bool = False
    sequential: bool = False

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def labels(self) -> Tensor:
        return self.targets

    def fetch(self, indices: Tensor, *, seed: int = 0, epoch: int | None = None) -> tuple[Tensor, Tensor]:
        return self.inputs[indices], self.targets[indices]


def images(*shape: int) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(SAMPLES, *shape, generator=generator)
    samples = TinySamples(inputs, torch.arange(SAMPLES) % CLASSES)
    return Dataset(samples, samples, tuple("abcde"), shape, sha256(inputs))


def text(steps: int) -> Dataset:
    words = torch.randint(CLASSES, (SAMPLES, steps + 1), generator=torch.Generator().manual_seed(0))
    samples = TinySamples(words[:, :-1], words[:, 1:], sequential=True)
    return Dataset(samples, samples, tuple("abcde"), (steps,), sha256(words), task="language")


DATASETS = [images(1, 8, 8), images(3, 32, 32), images(3, 224, 224), text(6)]


def build(name: str) -> tuple[nn.Module, Dataset]:
    """The model for the smallest dataset that it does not refuse."""
    config = parts.configure("models", {"name": name, **LIGHT.get(name, {})})
    refusals = []
    for dataset in DATASETS:
        torch.manual_seed(0)
        try:
            return models.build(config, dataset), dataset
        except Problem as problem:
            refusals.append(str(problem))
    raise AssertionError(f"{name} refuses everything: {refusals}")


def logits_of(model: nn.Module, x: Tensor) -> Tensor:
    output = model(x)
    return output[0] if getattr(model, "carries_state", False) else output


def loss_of(model: nn.Module, dataset: Dataset) -> Tensor:
    x, y = dataset.train.fetch(torch.arange(SAMPLES))
    return nn.functional.cross_entropy(logits_of(model, x).float().flatten(0, -2), y.flatten())


every_model = pytest.mark.parametrize("name", parts.names("models"))


def test_all_models_of_the_papers_are_found():
    assert {"resnet", "resnet_cifar", "alexnet", "googlenet", "cnn", "mlp", "lstm", "lstm_words"} <= set(
        parts.names("models")
    )


@every_model
def test_its_line_in_the_list_is_one_sentence(name):
    line = parts.summary("models", name)
    assert line.endswith(".")
    assert 20 < len(line) <= 120


@every_model
def test_its_defaults_are_valid_frozen_and_named_after_the_file(name):
    config = parts.configure("models", name)
    assert config.name == name
    assert type(config).model_validate(config.model_dump()) == config
    assert type(config).model_validate_json(config.model_dump_json()) == config
    with pytest.raises(ValueError):
        config.name = "other"
    with pytest.raises(Problem, match="no_such_option"):
        parts.configure("models", {"name": name, "no_such_option": 1})


@every_model
def test_forward_and_features(name):
    model, dataset = build(name)
    model.eval()
    x, y = dataset.test.fetch(torch.arange(SAMPLES))
    logits = logits_of(model, x)
    assert logits.shape == (*y.shape, CLASSES)
    found = model.features(x)
    assert found.ndim == 2
    assert len(found) == SAMPLES
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    torch.testing.assert_close(last(found), logits[:, -1] if dataset.task == "language" else logits)
    torch.testing.assert_close(models.features(model, x), found)


@every_model
def test_backward_reaches_every_parameter(name):
    model, dataset = build(name)
    loss_of(model, dataset).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
    assert parameter.grad.any()


@every_model
def test_the_seed_decides_every_weight(name):
    first, second = build(name)[0].state_dict(), build(name)[0].state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    config = parts.configure("models", {"name": name, **LIGHT.get(name, {})})
    dataset = build(name)[1]
    torch.manual_seed(1)
    third = models.build(config, dataset).state_dict()
    assert any(not torch.equal(first[key], third[key]) for key in first)


@every_model
def test_float64(name):
    model, dataset = build(name)
    x, _ = dataset.train.fetch(torch.arange(SAMPLES))
    logits = logits_of(model.double(), x.double() if x.is_floating_point() else x)
    assert logits.dtype == torch.float64


@every_model
def test_bfloat16_autocast_gives_finite_losses_and_gradients(name):
    model, dataset = build(name)
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(model, dataset)
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@every_model
def test_it_refuses_the_other_task(name):
    _, dataset = build(name)
    other = text(6) if dataset.task == "classify" else images(3, 32, 32)
    with pytest.raises(Problem, match=f"'{name}'.*use '"):
        models.build(parts.configure("models", name), other)


@every_model
def test_weights_survive_a_file(name, tmp_path):
    model, dataset = build(name)
    torch.save({"model": model.state_dict()}, tmp_path / "weights.pt")
    torch.manual_seed(1)
    other = models.build(parts.configure("models", {"name": name, **LIGHT.get(name, {})}), dataset)
    models.load_weights(other, tmp_path / "weights.pt")
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in model.state_dict().items())
