"""The contract of an optimizer: `build(config, named_parameters) -> torch.optim.Optimizer`."""

from __future__ import annotations

import functools
import io

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bigbatch import optim
from bigbatch.errors import Problem
from bigbatch.testing.common import CheckedPart, raises

_EPOCHS, _BATCH = 12, 64


def check_options_reach_the_optimizer(part: CheckedPart) -> None:
    config = part.configure(lr=0.25, weight_decay=0.125)
    optimizer = optim.build(config, _network())
    assert isinstance(optimizer, Optimizer)
    assert {(group["lr"], group["weight_decay"]) for group in optimizer.param_groups} == {(0.25, 0.125)}
    for option, value in config.model_dump(exclude={"name"}).items():
        found = optimizer.param_groups[0].get(option, getattr(optimizer, option, None))
        assert found == value, f"option '{option}' is {value} but the optimizer has {found}"


def check_wrong_options_are_refused(part: CheckedPart) -> None:
    for wrong in ({"lr": -1}, {"lr": float("nan")}, {"weight_decay": -0.1}):
        assert raises(Problem, functools.partial(part.configure, **wrong)), f"{wrong} is not refused"


def check_learns_digits(part: CheckedPart) -> None:
    model, optimizer = _start(part)
    _train(optimizer, model, _EPOCHS)
    _, _, images, labels = _digits()
    with torch.no_grad():
        accuracy = float((model(images).argmax(1) == labels).float().mean())
    assert accuracy > 0.9, f"test accuracy {accuracy:.3f} after {_EPOCHS} epochs of digits"


def check_resumes_bit_for_bit(part: CheckedPart) -> None:
    """From a file that `torch.load(weights_only=True)` reads."""
    model, optimizer = _start(part)
    _train(optimizer, model, 1)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    _train(optimizer, model, 1)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other, restored = _start(part)
    other.load_state_dict(saved["model"])
    restored.load_state_dict(saved["optimizer"])
    _train(restored, other, 1)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs), "a resumed training ends in other weights"


def _start(part: CheckedPart) -> tuple[nn.Module, Optimizer]:
    model = _network()
    return model, optim.build(part.configure(), model)


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


@functools.cache
def _digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from sklearn.datasets import load_digits

    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = images[order].float() / 16, labels[order]
    return images[:1400], labels[:1400], images[1400:], labels[1400:]


def _train(optimizer: Optimizer, model: nn.Module, epochs: int) -> None:
    images, labels, _, _ = _digits()
    for epoch in range(epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(_BATCH):
            optimizer.zero_grad()

            def loss(batch: Tensor = batch) -> Tensor:
                return nn.functional.cross_entropy(model(images[batch]), labels[batch])

            if optim.needs_closure(optimizer):
                optimizer.step(loss)  # type: ignore[arg-type]
            else:
                loss().backward()
                optimizer.step()
