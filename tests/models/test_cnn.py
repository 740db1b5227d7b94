from __future__ import annotations

import pytest
import torch
from torch import nn

from bigbatch.errors import Problem


@pytest.mark.parametrize(
    ("shape", "flat"), [((1, 8, 8), 32 * 2 * 2), ((1, 28, 28), 32 * 7 * 7), ((3, 32, 32), 32 * 8 * 8)]
)
def test_sizes_and_shapes(make, parameters, shape, flat):
    model = make("cnn", shape)
    x = torch.randn(2, *shape)
    assert parameters(model) == (16 * shape[0] * 9 + 16) + (32 * 16 * 9 + 32) + (flat * 64 + 64) + (64 * 10 + 10)
    assert model.features(x).shape == (2, 64)
    torch.testing.assert_close(model.head(model.features(x)), model(x))


def test_batch_norm_replaces_the_bias_of_its_convolution(make, parameters):
    plain, normed = make("cnn", (1, 8, 8)), make("cnn", (1, 8, 8), batch_norm=True)
    assert parameters(normed) - parameters(plain) == 16 + 32
    assert sum(isinstance(module, nn.BatchNorm2d) for module in normed.modules()) == 2


def test_dropout_acts_on_features_while_training(make):
    model = make("cnn", (1, 8, 8), hidden=1000, dropout=0.75)
    x = torch.randn(1, 1, 8, 8)
    kept = model.features(x).ne(0).sum() / model.eval().features(x).ne(0).sum()
    assert kept.item() == pytest.approx(0.25, abs=0.06)


def test_it_learns_which_half_is_bright(make):
    model = make("cnn", (1, 8, 8), 2)
    y = torch.arange(64) % 2
    x = torch.randn(64, 1, 8, 8)
    x[y == 1, :, :4] += 1
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(30):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert (model(x).argmax(1) == y).all()


def test_images_that_pooling_would_use_up_are_refused(make):
    assert make("cnn", (1, 4, 4))(torch.zeros(2, 1, 4, 4)).shape == (2, 10)
    with pytest.raises(Problem, match="'cnn' needs images of at least 4 x 4 pixels, not 3 x 8: use 'mlp'"):
        make("cnn", (1, 3, 8))


@pytest.mark.parametrize("options", [{"width": 0}, {"hidden": -1}, {"dropout": 1}, {"dropout": -0.1}])
def test_bad_options_are_refused_by_name(make, options):
    with pytest.raises(Problem, match=f"model 'cnn'.*{next(iter(options))}"):
        make("cnn", (1, 8, 8), **options)
