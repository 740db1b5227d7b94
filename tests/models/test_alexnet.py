from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from bigbatch import models
from bigbatch.errors import Problem


def test_one_tower_is_torchvisions(sketch, parameters):
    model = sketch("alexnet", (3, 224, 224), 1000)
    assert parameters(model) == 61_100_840  # torchvision's documentation of AlexNet_Weights ("num_params")
    layers = [*(f"features.{index}" for index in (0, 3, 6, 8, 10)), *(f"classifier.{index}" for index in (1, 4, 6))]
    assert list(model.state_dict()) == [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]


def test_two_towers_are_the_original(sketch, parameters):
    model = sketch("alexnet", (3, 227, 227), 1000, tower="two")
    convolutions = [
        96 * 3 * 11 * 11 + 96,
        256 * 48 * 5 * 5 + 256,
        384 * 256 * 3 * 3 + 384,
        384 * 192 * 3 * 3 + 384,
        256 * 192 * 3 * 3 + 256,
    ]
    linears = [9216 * 4096 + 4096, 4096 * 4096 + 4096, 4096 * 1000 + 1000]
    assert parameters(model) == sum(convolutions) + sum(linears) == 60_965_224
    kinds = [type(layer).__name__ for layer in model.features]
    assert kinds[:8] == [*("Conv2d", "ReLU", "LocalResponseNorm", "MaxPool2d")] * 2


@pytest.mark.parametrize("tower", ["one", "two"])
def test_alexnet_bn_has_a_norm_between_each_convolution_and_its_relu(sketch, parameters, tower):
    plain = sketch("alexnet", (3, 224, 224), 1000, tower=tower)
    normed = sketch("alexnet", (3, 224, 224), 1000, tower=tower, batch_norm=True)
    kinds = [type(layer) for layer in normed.features if not isinstance(layer, nn.MaxPool2d)]
    assert kinds == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU] * 5
    # a scale more for each channel: the norm's shift takes the place of the bias
    channels = [layer.out_channels for layer in plain.features if isinstance(layer, nn.Conv2d)]
    assert parameters(normed) - parameters(plain) == sum(channels)


def test_caffes_initialisation_of_the_original(make):
    model = make("alexnet", (3, 32, 32), variant="cifar", tower="two")
    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    deviations = [layer.weight.std().item() for layer in layers]
    assert deviations == pytest.approx([0.01] * 5 + [0.005] * 2 + [0.01], rel=0.05)
    biases = [layer.bias.unique().tolist() for layer in layers]
    assert biases == [pytest.approx([bias]) for bias in (0, 0.1, 0, 0.1, 0.1, 0.1, 0.1, 0)]


def test_the_grid_of_6_x_6_at_224_pixels(make):
    # 224 -> 55 -> 27 -> 13 -> 6
    model = make("alexnet", (3, 224, 224))
    shapes = []
    model.avgpool.register_forward_hook(lambda _, inputs, __: shapes.append(tuple(inputs[0].shape)))
    assert model.features(torch.zeros(1, 3, 224, 224)).shape == (1, 4096)
    assert shapes == [(1, 256, 6, 6)]


@pytest.fixture
def small(make):
    return make("alexnet", (3, 32, 32), variant="cifar").eval()


def test_cifar_variant(small, parameters):
    # 64·75+64, 192·64·9+192, 384·192·9+384, 256·384·9+256, 256·256·9+256; 2304·1024+1024, 1024²+1024, 10·1024+10
    assert parameters(small) == 4_864 + 110_784 + 663_936 + 884_992 + 590_080 + 2_360_320 + 1_049_600 + 10_250
    x = torch.randn(2, 3, 32, 32)
    assert small.features(x).shape == (2, 1024)
    torch.testing.assert_close(small.classifier[-1](small.features(x)), small(x))
    torch.testing.assert_close(models.features(small, x), small.features(x))


def test_a_copy_has_features_of_its_own(small):
    # `features` goes on into the classifier of its model: a copy must not reach into the first model's
    x = torch.randn(2, 3, 32, 32)
    before = small.features(x)
    other = copy.deepcopy(small)
    with torch.no_grad():
        for parameter in other.classifier.parameters():
            parameter.zero_()
    assert not other.features(x).any()
    assert torch.equal(small.features(x), before)
    assert before.any()


def test_parameters_can_be_passed_in(small):
    # what per-sample gradients do
    zeros = {name: torch.zeros_like(parameter) for name, parameter in small.named_parameters()}
    ones = zeros | {"classifier.6.bias": torch.ones(10), "classifier.4.bias": torch.ones(1024)}
    ones["classifier.6.weight"] = torch.ones(10, 1024)
    assert torch.func.functional_call(small, ones, torch.randn(1, 3, 32, 32)).unique().tolist() == [1025.0]


def test_a_slice_of_the_convolutions_gives_their_maps(small):
    assert small.features[:3](torch.randn(2, 3, 32, 32)).shape == (2, 64, 15, 15)


@pytest.mark.parametrize("tower", ["one", "two"])
def test_dropout_is_two_masks_while_training_only(make, tower):
    model = make("alexnet", (3, 32, 32), variant="cifar", tower=tower, dropout=0.9)
    assert [layer.p for layer in model.classifier if isinstance(layer, nn.Dropout)] == [0.9, 0.9]
    x = torch.randn(2, 3, 32, 32)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


@pytest.mark.parametrize(("variant", "smallest"), [("imagenet", 63), ("cifar", 15)])
def test_the_smallest_image_is_taken_and_a_smaller_one_refused(make, variant, smallest):
    model = make("alexnet", (1, smallest, smallest), variant=variant)
    assert model(torch.zeros(2, 1, smallest, smallest)).shape == (2, 10)
    with pytest.raises(Problem, match=f"at least {smallest} x {smallest} pixels, not {smallest - 1} x 64: use .*'cnn'"):
        make("alexnet", (1, smallest - 1, 64), variant=variant)
    with pytest.raises(RuntimeError):  # the limit is the network's own
        model(torch.zeros(2, 1, smallest - 1, 64))


def test_digits_are_too_small_for_imagenets(make):
    with pytest.raises(Problem, match="not 8 x 8: use variant 'cifar'"):
        make("alexnet", (1, 8, 8))
