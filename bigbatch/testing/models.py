"""The contract of a model: `build(config, dataset) -> nn.Module` with `features(x)`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from bigbatch import datasets, models, parts
from bigbatch.datasets import Dataset
from bigbatch.errors import Problem
from bigbatch.testing.common import CheckedPart
from bigbatch.training.forward import autocast_bfloat16

_SAMPLES, _CLASSES = 4, 5


def check_forward_and_features(part: CheckedPart) -> None:
    """`features` gives what the last linear layer sees."""
    model, dataset = _build(part)
    model.eval()
    x, y = dataset.test.fetch(torch.arange(_SAMPLES))
    logits = _logits(model, x)
    assert logits.shape == (*y.shape, _CLASSES)
    found = models.features(model, x)
    assert found.ndim == 2
    assert len(found) == _SAMPLES
    own = getattr(model, "features", None)
    if callable(own) and not isinstance(own, nn.Sequential):  # which holds convolutions only in public networks
        torch.testing.assert_close(own(x), found)
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    torch.testing.assert_close(last(found), logits[:, -1] if dataset.task == "language" else logits)


def check_backward_reaches_every_parameter(part: CheckedPart) -> None:
    model, dataset = _build(part)
    _loss(model, dataset).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} has no gradient"
        assert bool(parameter.grad.isfinite().all()), f"the gradient of {name} is not finite"
    assert any(bool(p.grad.any()) for p in model.parameters() if p.grad is not None), "all gradients are zero"


def check_the_seed_decides_every_weight(part: CheckedPart) -> None:
    (first, dataset), (second, _) = _build(part), _build(part)
    torch.manual_seed(1)
    third = models.build(part.configure(), dataset).state_dict()
    assert all(torch.equal(value, second.state_dict()[name]) for name, value in first.state_dict().items())
    assert any(not torch.equal(value, third[name]) for name, value in first.state_dict().items())


def check_precision(part: CheckedPart) -> None:
    """float64, and bfloat16 autocast with finite losses and gradients."""
    model, dataset = _build(part)
    with autocast_bfloat16(torch.device("cpu")):
        loss = _loss(model, dataset)
    loss.backward()
    assert bool(loss.isfinite())
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)
    x, _ = dataset.train.fetch(torch.arange(_SAMPLES))
    assert _logits(model.double(), x.double() if x.is_floating_point() else x).dtype == torch.float64


def check_the_other_task_is_refused(part: CheckedPart) -> None:
    _, dataset = _build(part)
    other = _synthetic(6) if dataset.task == "classify" else _synthetic(3, 32, 32)
    refusal = ""
    try:
        models.build(part.configure(), other)
    except Problem as problem:
        refusal = str(problem)
    assert refusal, f"a dataset of the task other than '{dataset.task}' is not refused"
    assert f"'{part.name}'" in refusal, f"the refusal does not name the model: {refusal}"
    assert "use '" in refusal, f"the refusal does not name another model: {refusal}"


def check_weights_survive_a_file(part: CheckedPart) -> None:
    model, dataset = _build(part)
    torch.manual_seed(1)
    other = models.build(part.configure(), dataset)
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"model": model.state_dict()}, Path(folder) / "weights.pt")
        models.load_weights(other, Path(folder) / "weights.pt")
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in model.state_dict().items())


def _synthetic(*sample_shape: int) -> Dataset:
    """Return random images, or a text if the shape is one number."""
    options = {"sample_shape": sample_shape, "classes": _CLASSES, "samples": _SAMPLES}
    return datasets.load(parts.configure("datasets", {"name": "synthetic", **options}))


def _build(part: CheckedPart) -> tuple[nn.Module, Dataset]:
    """Return the model for the smallest dataset that it does not refuse, and the dataset."""
    refusals = []
    for shape in ((1, 8, 8), (3, 32, 32), (3, 224, 224), (6,)):
        dataset = _synthetic(*shape)
        torch.manual_seed(0)
        try:
            return models.build(part.configure(), dataset), dataset
        except Problem as problem:
            refusals.append(str(problem))
    raise AssertionError(f"{part.name} refuses images of 8, 32 and 224 pixels and text: {refusals}")


def _logits(model: nn.Module, x: Tensor) -> Tensor:
    output = model(x)
    return output if isinstance(output, Tensor) else output[0]


def _loss(model: nn.Module, dataset: Dataset) -> Tensor:
    x, y = dataset.train.fetch(torch.arange(_SAMPLES))
    return nn.functional.cross_entropy(_logits(model, x).float().flatten(0, -2), y.flatten())
