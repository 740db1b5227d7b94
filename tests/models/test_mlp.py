from __future__ import annotations

import numpy as np
import pytest
import torch

from bigbatch.errors import Problem


def test_sizes(make, parameters):
    assert parameters(make("mlp", (1, 8, 8))) == (64 * 64 + 64) + (64 * 10 + 10)
    assert parameters(make("mlp", (1, 8, 8), hidden=(5, 4))) == (64 * 5 + 5) + (5 * 4 + 4) + (4 * 10 + 10)


def test_against_numpy(make):
    model = make("mlp", (2, 3), classes=4, hidden=(5,)).double()
    x = torch.randn(7, 2, 3, dtype=torch.float64)
    w1, b1, w2, b2 = (parameter.detach().numpy() for parameter in model.parameters())
    hidden = np.maximum(x.numpy().reshape(7, 6) @ w1.T + b1, 0)
    np.testing.assert_allclose(model.features(x).detach().numpy(), hidden, rtol=1e-12)
    np.testing.assert_allclose(model(x).detach().numpy(), hidden @ w2.T + b2, rtol=1e-12)


def test_no_hidden_layer_is_logistic_regression(make):
    model = make("mlp", (1, 8, 8), hidden=())
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(model.features(x), x.flatten(1))
    assert len(list(model.parameters())) == 2


def test_bad_widths_and_text_are_refused(make):
    with pytest.raises(Problem, match=r"model 'mlp'.*hidden"):
        make("mlp", (1, 8, 8), hidden=(64, 0))
    with pytest.raises(Problem, match="'mlp' predicts one label per sample"):
        make("mlp", (20,), task="language")
