"""The backward pass without the discarded samples gives the plain one's gradients, and really runs fewer rows."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from bigbatch.selectors import kept_loss, skip_zero_rows, small_loss

MODELS = {
    "convolution": lambda: nn.Sequential(*convolution(), nn.Conv2d(8, 8, 3, groups=2), nn.Flatten(), nn.Linear(32, 5)),
    "transposed": lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 2, stride=2), nn.Flatten(), nn.Linear(1024, 5)),
    "batchnorm": lambda: nn.Sequential(*convolution(), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(128, 5)),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 7, bias=False), nn.Tanh(), nn.Linear(7, 5)),
    "lstm": lambda: Recurrent(),
}


def convolution() -> list[nn.Module]:
    return [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(24, 6, batch_first=True), nn.Linear(6, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(images.permute(0, 2, 1, 3).flatten(2))[0][:, -1])


class CountRows(TorchDispatchMode):
    """Rows that convolutions' backward passes are given: seen below `skip_zero_rows`, since it is entered first."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if operation is torch.ops.aten.convolution_backward.default:
            self.rows.append(len(args[0]))
        return operation(*args, **(kwargs or {}))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(20, 3, 8, 8, generator=generator, dtype=torch.float64)
    return images, torch.randint(5, (20,), generator=generator)


def gradients(model: nn.Module, discard: float, *, skip: bool) -> list[torch.Tensor]:
    images, targets = batch()
    images.requires_grad_()
    losses = cross_entropy(model(images), targets, reduction="none")
    loss = kept_loss(losses, small_loss(losses, discard))
    model.zero_grad()
    if skip:
        with skip_zero_rows():
            loss.backward()
    else:
        loss.backward()
    return [images.grad, *(parameter.grad.clone() for parameter in model.parameters())]


@pytest.mark.parametrize("discard", [0.0, 0.05, 0.3, 0.9])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_the_plain_backward_pass(name, discard):
    torch.manual_seed(0)
    model = MODELS[name]().double()
    plain, skipped = gradients(model, discard, skip=False), gradients(model, discard, skip=True)
    for expected, actual in zip(plain, skipped, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(("name", "rows"), [("convolution", [14, 14]), ("batchnorm", [20])])
def test_discarded_rows_are_not_run_unless_a_layer_mixes_them_in_again(name, rows):
    torch.manual_seed(0)
    model = MODELS[name]().double()
    with CountRows() as counted:
        gradients(model, 0.3, skip=True)
    assert counted.rows == rows


def test_a_nan_among_the_kept_is_not_taken_for_zero():
    layer = nn.Linear(3, 2)
    outputs = layer(torch.tensor([[1.0, 2.0, 3.0], [float("nan"), 0.0, 0.0], [1.0, 1.0, 1.0]]))
    with skip_zero_rows():
        (outputs.sum(1) * torch.tensor([0.0, 1.0, 0.0])).sum().backward()
    assert layer.weight.grad.isnan().any()


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_gradient_of_zeros_and_an_empty_batch_pass_through(count):
    model = MODELS["convolution"]()
    images = torch.ones(count, 3, 8, 8, requires_grad=True)
    with skip_zero_rows():
        (model(images).sum() * 0.0).backward()
    assert images.grad.shape == images.shape
    assert all(parameter.grad.count_nonzero() == 0 for parameter in model.parameters())
