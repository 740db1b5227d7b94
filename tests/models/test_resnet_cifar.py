from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bigbatch import models
from bigbatch.errors import Problem
from bigbatch.models.resnet_cifar import pad_shortcut

CIFAR10 = Path.home() / ".cache" / "bigbatch" / "datasets" / "cifar-10-batches-bin"
WEIGHTS = Path(__file__).parents[3] / "shared" / "weights"


def count_by_hand(n: int) -> int:
    """Table 6 of the paper in millions: .27 .46 .66 .85 1.7; here from the layers, n blocks a stage."""

    def block(inputs, channels):
        return 9 * channels * (inputs + channels) + 2 * 2 * channels

    stages = [(16, 16), (16, 32), (32, 64)]
    blocks = sum(block(inputs, channels) + (n - 1) * block(channels, channels) for inputs, channels in stages)
    return 3 * 9 * 16 + 2 * 16 + blocks + 64 * 10 + 10


@pytest.mark.parametrize(
    ("depth", "count"), [(20, 269_722), (32, 464_154), (44, 658_586), (56, 853_018), (110, 1_727_962)]
)
def test_sizes(sketch, parameters, depth, count):
    # projections (option B) would make 20 layers 272,474
    model = sketch("resnet_cifar", (3, 32, 32), depth=depth)
    assert parameters(model) == count == count_by_hand((depth - 2) // 6)


def test_names(sketch):
    model = sketch("resnet_cifar", (3, 32, 32))
    names = [name for name, _ in model.named_parameters()]
    assert names[:4] == ["conv1.weight", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight"]
    assert names[-3:] == ["layer3.2.bn2.bias", "linear.weight", "linear.bias"]
    assert len(model.state_dict()) == 19 * 6 + 2


def test_option_a_against_numpy():
    x = np.random.default_rng(0).normal(size=(2, 4, 5, 6))
    expected = np.zeros((2, 8, 3, 3))
    for row in range(3):
        for column in range(3):
            expected[:, 2:6, row, column] = x[:, :, 2 * row, 2 * column]
    assert np.array_equal(pad_shortcut(torch.from_numpy(x), channels=8, stride=2).numpy(), expected)


def test_a_shortcut_of_equal_shape_is_the_identity():
    x = torch.randn(2, 16, 5, 5)
    assert torch.equal(pad_shortcut(x, channels=16, stride=1), x)


def test_initialisation_is_he_normal_of_the_fan_in(make):
    weight = make("resnet_cifar", (3, 32, 32)).layer3[0].conv1.weight  # [64, 32, 3, 3]
    # fan_in: √(2 / (32·9)) = .0833; fan_out would give .0589
    assert weight.std().item() == pytest.approx(0.0833, rel=0.03)


def test_shapes_and_gradients(make):
    model = make("resnet_cifar", (1, 28, 28), 7)
    x = torch.randn(2, 1, 28, 28)
    assert model.features(x).shape == (2, 64)
    model(x).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_weights_of_another_depth_are_refused(make, tmp_path):
    torch.save({"state_dict": make("resnet_cifar", (3, 32, 32), depth=20).state_dict()}, tmp_path / "resnet20.th")
    with pytest.raises(Problem, match=r"have no 'layer1\.3\.conv1\.weight', which CifarResNet needs"):
        models.load_weights(make("resnet_cifar", (3, 32, 32), depth=32), tmp_path / "resnet20.th")


def test_images_too_small_to_stride_over_are_refused(make):
    assert make("resnet_cifar", (1, 3, 3))(torch.zeros(2, 1, 3, 3)).shape == (2, 10)
    with pytest.raises(Problem, match="at least 3 x 3 pixels, not 2 x 8: use 'mlp'"):
        make("resnet_cifar", (1, 2, 8))


def cifar10_test() -> tuple[torch.Tensor, torch.Tensor]:
    """The binary layout: a label byte, then 3072 bytes of red, green and blue rows."""
    records = torch.from_numpy(np.fromfile(CIFAR10 / "test_batch.bin", np.uint8).reshape(10_000, 3073))
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    images = (records[:, 1:].reshape(-1, 3, 32, 32).float() / 255 - mean) / std
    return images, records[:, 0].long()


@pytest.mark.realdata
@pytest.mark.skipif(not CIFAR10.is_dir(), reason="needs the CIFAR-10 binary files")
@pytest.mark.skipif(not WEIGHTS.is_dir(), reason="needs the published weights")
@pytest.mark.parametrize(
    # 100 minus the test errors in their author's README; "best_prec1" inside the files is of an earlier epoch
    ("depth", "name", "percent"),
    [(20, "resnet20-12fca82f.th", 91.73), (56, "resnet56-4bfd9763.th", 93.39)],
)
def test_published_weights_reach_their_published_accuracy(make, depth, name, percent):
    model = make("resnet_cifar", (3, 32, 32), depth=depth).eval()
    models.load_weights(model, WEIGHTS / name)
    images, labels = cifar10_test()
    with torch.inference_mode():
        right = sum(
            int((model(x).argmax(1) == y).sum()) for x, y in zip(images.split(500), labels.split(500), strict=True)
        )
    assert right / 100 == pytest.approx(percent, abs=0.015)
