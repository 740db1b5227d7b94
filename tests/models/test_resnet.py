from __future__ import annotations

import math

import pytest
import torch

from bigbatch import models
from bigbatch.errors import Problem

# parameters: torchvision's documentation of its weights ("num_params"); entries of the state dict: counted by layer,
# five a BatchNorm and one a convolution, two for fc: e.g. 50 has 53 of each, 53 * 6 + 2 = 320
PUBLISHED = {
    18: (11_689_512, 20 * 6 + 2, 512),
    34: (21_797_672, 36 * 6 + 2, 512),
    50: (25_557_032, 53 * 6 + 2, 2048),
    101: (44_549_160, 104 * 6 + 2, 2048),
    152: (60_192_808, 155 * 6 + 2, 2048),
}


@pytest.mark.parametrize("depth", PUBLISHED)
def test_sizes_are_the_published_ones(sketch, parameters, depth):
    count, entries, width = PUBLISHED[depth]
    model = sketch("resnet", (3, 224, 224), 1000, depth=depth)
    assert parameters(model) == count
    assert len(model.state_dict()) == entries
    assert model.fc.weight.shape == (1000, width)


def test_resnet50_has_161_tensors_under_torchvisions_names(sketch):
    model = sketch("resnet", (3, 224, 224), 1000)
    names = [name for name, _ in model.named_parameters()]
    assert len(names) == 161
    assert names[:3] == ["conv1.weight", "bn1.weight", "bn1.bias"]
    assert names[3:15] == [
        *("layer1.0.conv1.weight", "layer1.0.bn1.weight", "layer1.0.bn1.bias"),
        *("layer1.0.conv2.weight", "layer1.0.bn2.weight", "layer1.0.bn2.bias"),
        *("layer1.0.conv3.weight", "layer1.0.bn3.weight", "layer1.0.bn3.bias"),
        *("layer1.0.downsample.0.weight", "layer1.0.downsample.1.weight", "layer1.0.downsample.1.bias"),
    ]
    assert names[-5:] == ["layer4.2.conv3.weight", "layer4.2.bn3.weight", "layer4.2.bn3.bias", "fc.weight", "fc.bias"]
    assert {"bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked"} <= set(model.state_dict())


def test_resnet18_projects_only_where_the_shape_changes(sketch):
    names = [name for name, _ in sketch("resnet", (3, 224, 224), depth=18).named_parameters() if "downsample.0" in name]
    assert names == [f"layer{stage}.0.downsample.0.weight" for stage in (2, 3, 4)]


def test_the_bottlenecks_stride_is_on_the_3x3_convolution(sketch):
    block = sketch("resnet", (3, 224, 224)).layer2[0]
    assert [block.conv1.stride, block.conv2.stride, block.conv3.stride] == [(1, 1), (2, 2), (1, 1)]


@pytest.mark.parametrize(("stem", "pixels"), [("imagenet", 2), ("cifar", 8)])
def test_the_stem_decides_how_many_pixels_reach_the_last_stage(make, stem, pixels):
    # 64 / 2 / 2 / 8 = 2 with torchvision's stem, 64 / 8 = 8 with CIFAR's
    model = make("resnet", (3, 64, 64), depth=18, width=1 / 16, stem=stem)
    shapes = []
    model.layer4.register_forward_hook(lambda _, __, out: shapes.append(tuple(out.shape)))
    model(torch.randn(2, 3, 64, 64))
    assert shapes == [(2, 32, pixels, pixels)]


@pytest.mark.parametrize("depth", [18, 50])
def test_width_and_input_channels(make, depth):
    model = make("resnet", (1, 32, 32), 7, depth=depth, width=0.125)
    x = torch.randn(2, 1, 32, 32)
    assert model.features(x).shape == (2, 64 if depth == 18 else 256)
    assert model(x).shape == (2, 7)


def test_a_width_that_rounds_to_nothing_keeps_a_channel(make):
    assert make("resnet", (3, 32, 32), depth=18, width=0.001).conv1.weight.shape == (1, 3, 7, 7)


def test_initialisation_is_he_normal_of_the_fan_out(make):
    weight = make("resnet", (3, 32, 32), depth=18).layer4[0].conv1.weight  # [512, 256, 3, 3]
    # fan_out: √(2 / (512·9)) = .0208; fan_in would give .0295
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (512 * 9)), rel=0.01)


@pytest.mark.parametrize(("depth", "last"), [(18, "bn2"), (50, "bn3")])
def test_zero_init_residual_makes_each_block_start_as_its_shortcut(make, depth, last):
    block = make("resnet", (3, 32, 32), depth=depth, width=0.125, zero_init_residual=True).layer1[1]
    assert not getattr(block, last).weight.any()
    assert block.bn1.weight.all()
    x = torch.randn(2, 8 * block.expansion, 4, 4)
    assert torch.equal(block(x), x.relu())


def test_float64(make):
    model = make("resnet", (3, 32, 32), depth=18, width=0.125).double()
    assert model(torch.randn(2, 3, 32, 32, dtype=torch.float64)).dtype == torch.float64


def test_published_weights_without_counters_load(make, tmp_path):
    """torchvision's first files were written before BatchNorm counted its batches."""
    torch.manual_seed(1)
    source, target = (make("resnet", (3, 32, 32), depth=18, width=0.125) for _ in range(2))
    with torch.no_grad():
        source.layer1[0].bn1.running_mean.fill_(3)
    state = {key: value for key, value in source.state_dict().items() if "num_batches" not in key}
    torch.save(state, tmp_path / "resnet18.pth")
    models.load_weights(target, tmp_path / "resnet18.pth")
    assert target.layer1[0].bn1.running_mean.eq(3).all()


@pytest.mark.parametrize(("stem", "smallest"), [("imagenet", 17), ("cifar", 5)])
def test_the_smallest_image_leaves_two_pixels_to_stride_over(make, stem, smallest):
    model = make("resnet", (3, smallest, smallest), depth=18, width=0.125, stem=stem)
    sides = []
    model.layer4.register_forward_pre_hook(lambda _, inputs: sides.append(tuple(inputs[0].shape[2:])))
    model(torch.zeros(2, 3, smallest, smallest))
    assert sides == [(2, 2)]
    with pytest.raises(Problem, match=f"at least {smallest} x {smallest} pixels, not {smallest - 1} x 32: use .*'cnn'"):
        make("resnet", (3, smallest - 1, 32), stem=stem)


def test_bfloat16_gradients_of_weights_that_see_only_padding_are_zero(make):
    """At a single pixel torch leaves memory uninitialised there; the smallest image allowed has two."""
    model = make("resnet", (3, 17, 17), depth=18, width=0.25)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(torch.randn(4, 3, 17, 17)).square().sum()
    loss.backward()
    gradient = model.layer4[0].conv1.weight.grad
    assert not gradient[:, :, 0].any()
    assert not gradient[:, :, :, 0].any()
    assert gradient[:, :, 1:, 1:].any()
    assert gradient.isfinite().all()


def test_digits_are_too_small_for_imagenets_stem(make):
    with pytest.raises(Problem, match="not 8 x 8: use stem 'cifar'"):
        make("resnet", (1, 8, 8))


def test_text_is_refused(make):
    with pytest.raises(
        Problem, match="'resnet' predicts one label per sample and cannot learn a language: use 'lstm_words'"
    ):
        make("resnet", (20,), task="language")


def test_flat_samples_are_refused(make):
    with pytest.raises(Problem, match=r"'resnet' takes images .* not samples of shape \(64,\): use 'mlp'"):
        make("resnet", (64,))


@pytest.mark.parametrize("options", [{"depth": 19}, {"width": 0}, {"width": -1}, {"stem": "mnist"}, {"widht": 1}])
def test_bad_options_are_refused_by_name(make, options):
    with pytest.raises(Problem, match=f"model 'resnet'.*{next(iter(options))}"):
        make("resnet", (3, 32, 32), **options)
