from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from bigbatch import models
from bigbatch.errors import Problem
from bigbatch.models.googlenet import INCEPTIONS


def count_by_hand(large: int, per_channel: int) -> int:
    """per_channel: 1 with biases, 2 with BatchNorm's scale and shift."""

    def convolution(inputs, channels, kernel):
        return inputs * channels * kernel * kernel + per_channel * channels

    total = convolution(3, 64, 7) + convolution(64, 64, 1) + convolution(64, 192, 3)
    inputs = 192
    for one, three_reduced, three, five_reduced, five, pooled in INCEPTIONS.values():
        total += convolution(inputs, one, 1) + convolution(inputs, pooled, 1)
        total += convolution(inputs, three_reduced, 1) + convolution(three_reduced, three, 3)
        total += convolution(inputs, five_reduced, 1) + convolution(five_reduced, five, large)
        inputs = one + three + five + pooled
    return total + inputs * 1000 + 1000


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 6_998_552),  # Caffe's bvlc_googlenet without auxiliary heads
        ({"batch_norm": True}, 6_624_904),  # torchvision's documentation of GoogLeNet_Weights ("num_params")
        ({"five_by_five": False}, count_by_hand(large=3, per_channel=1)),
        ({"batch_norm": True, "five_by_five": True}, count_by_hand(large=5, per_channel=2)),
    ],
)
def test_sizes(sketch, parameters, options, count):
    assert parameters(sketch("googlenet", (3, 224, 224), 1000, **options)) == count


def test_the_published_sizes_by_hand():
    assert count_by_hand(large=5, per_channel=1) == 6_998_552
    assert count_by_hand(large=3, per_channel=2) == 6_624_904


def test_names_with_batch_norm_are_torchvisions(sketch):
    keys = list(sketch("googlenet", (3, 224, 224), 1000, batch_norm=True).state_dict())
    assert len(keys) == 57 * 6 + 2
    assert keys[:2] == ["conv1.conv.weight", "conv1.bn.weight"]
    assert {
        "conv3.bn.running_var",
        "inception3a.branch1.conv.weight",
        "inception3a.branch2.1.conv.weight",
        "inception4e.branch3.1.bn.num_batches_tracked",
        "inception5b.branch4.1.conv.weight",
        "fc.bias",
    } <= set(keys)


def test_torchvisions_auxiliary_heads_are_left_out(make, tmp_path):
    model = make("googlenet", (3, 32, 32), batch_norm=True)
    state = {key: torch.full_like(value, 2) for key, value in model.state_dict().items()}
    torch.save(state | {"aux1.fc1.weight": torch.ones(1), "aux2.conv.bn.bias": torch.ones(1)}, tmp_path / "weights.pth")
    models.load_weights(model, tmp_path / "weights.pth")
    assert model.fc.bias.eq(2).all()


@pytest.mark.parametrize("batch_norm", [False, True])
def test_sizes_of_the_maps_at_224_pixels(make, batch_norm):
    model = make("googlenet", (3, 224, 224), batch_norm=batch_norm)
    sides = {}
    for name in ("conv3", "inception3a", "inception4a", "inception5b"):
        getattr(model, name).register_forward_hook(
            lambda _, __, out, name=name: sides.update({name: (out.shape[1], *out.shape[2:])})
        )
    with torch.inference_mode():
        model.eval()(torch.zeros(1, 3, 224, 224))
    assert sides == {
        "conv3": (192, 56, 56),
        "inception3a": (256, 28, 28),
        "inception4a": (512, 14, 14),
        "inception5b": (1024, 7, 7),
    }


@pytest.mark.parametrize("batch_norm", [False, True])
def test_shapes_and_gradients_at_32_pixels(make, batch_norm):
    model = make("googlenet", (3, 32, 32), 7, batch_norm=batch_norm)
    x = torch.randn(3, 3, 32, 32)
    assert model.features(x).shape == (3, 1024)
    model(x).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_lrn_or_batch_norm_never_both(sketch):
    def kinds(**options):
        return {type(module) for module in sketch("googlenet", (3, 224, 224), **options).modules()}

    assert nn.LocalResponseNorm in kinds()
    assert nn.BatchNorm2d not in kinds()
    assert nn.BatchNorm2d in kinds(batch_norm=True)
    assert nn.LocalResponseNorm not in kinds(batch_norm=True)


def test_caffes_initialisation(make):
    model = make("googlenet", (3, 32, 32))
    # fan_in 64·9 = 576: uniform within √(3/576) = .0722; torch's own Glorot would give .0510
    weight = model.conv3.conv.weight
    assert weight.abs().max().item() == pytest.approx(math.sqrt(3 / 576), rel=0.001)
    assert weight.abs().max().item() <= math.sqrt(3 / 576)
    assert model.conv3.conv.bias.unique().item() == pytest.approx(0.2)
    assert not model.fc.bias.any()


def test_torchvisions_initialisation_is_cut_at_two_deviations(make):
    weight = make("googlenet", (3, 32, 32), batch_norm=True).inception5b.branch2[1].conv.weight
    assert weight.abs().max().item() <= 0.02
    # a normal cut at ±2σ has .880 of the deviation
    assert weight.std().item() == pytest.approx(0.00880, rel=0.01)


@pytest.mark.parametrize(("batch_norm", "smallest"), [(False, 31), (True, 15)])
def test_the_smallest_image_is_taken_and_a_smaller_one_refused(make, batch_norm, smallest):
    model = make("googlenet", (1, smallest, smallest), batch_norm=batch_norm).eval()
    assert model(torch.zeros(1, 1, smallest, smallest)).shape == (1, 10)
    with pytest.raises(Problem, match=f"at least {smallest} x {smallest} pixels"):
        make("googlenet", (1, smallest - 1, smallest - 1), batch_norm=batch_norm)
    with pytest.raises(RuntimeError):  # the limit is the network's own
        model(torch.zeros(1, 1, smallest - 1, smallest - 1))
