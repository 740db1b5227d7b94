from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bigbatch.errors import Problem


def test_size_of_the_papers_network(make, parameters):
    # 28 -> 128; kernel 256 x 512 and torch's two biases of 512; 128 -> 10
    assert parameters(make("lstm", (1, 28, 28))) == (28 * 128 + 128) + (256 * 512 + 2 * 512) + (128 * 10 + 10)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_against_a_hand_written_lstm(make):
    model = make("lstm", (2, 3, 4), hidden=5).double()
    x = torch.randn(6, 2, 3, 4, dtype=torch.float64)
    state = {key: value.numpy() for key, value in model.state_dict().items()}
    h = c = np.zeros((6, 5))
    for row in range(3):
        pixels = np.concatenate([x[:, 0, row].numpy(), x[:, 1, row].numpy()], axis=1)
        inner = pixels @ state["inner.weight"].T + state["inner.bias"]
        gates = inner @ state["lstm.weight_ih_l0"].T + state["lstm.bias_ih_l0"]
        gates = gates + h @ state["lstm.weight_hh_l0"].T + state["lstm.bias_hh_l0"]
        enter, forget, cell, out = np.split(gates, 4, axis=1)
        c = sigmoid(forget) * c + sigmoid(enter) * np.tanh(cell)
        h = sigmoid(out) * np.tanh(c)
    np.testing.assert_allclose(model.features(x).detach().numpy(), h, rtol=1e-10)
    np.testing.assert_allclose(model(x).detach().numpy(), h @ state["head.weight"].T + state["head.bias"], rtol=1e-10)


def test_tensorflow_initialisation(make):
    model = make("lstm", (1, 28, 28))
    # one kernel [128 + 128, 512]: √(6 / (256 + 512)) = .0884; torch's matrices by themselves would give .0968
    bound = math.sqrt(6 / 768)
    for weight in (model.lstm.weight_ih_l0, model.lstm.weight_hh_l0):
        assert weight.abs().max().item() <= bound
        assert weight.abs().max().item() == pytest.approx(bound, rel=0.001)
        assert weight.mean().item() == pytest.approx(0, abs=0.002)
    assert model.inner.weight.abs().max().item() == pytest.approx(math.sqrt(6 / 156), rel=0.01)
    assert not model.inner.bias.any()
    assert not model.head.bias.any()


def test_the_two_biases_sum_to_one_at_the_forget_gate_and_zero_elsewhere(make):
    lstm = make("lstm", (1, 28, 28)).lstm
    enter, forget, cell, out = (lstm.bias_ih_l0 + lstm.bias_hh_l0).chunk(4)
    assert forget.eq(1).all()
    assert not torch.cat([enter, cell, out]).any()


def test_torch_initialisation_is_torchs(make):
    lstm = make("lstm", (1, 28, 28), init="torch").lstm
    # ±1/√128 = .0884 also bounds the biases, none of which is set apart
    assert 0.085 < lstm.weight_hh_l0.abs().max().item() <= 1 / math.sqrt(128)
    assert lstm.bias_hh_l0.abs().max().item() > 0.05
    assert lstm.bias_ih_l0.chunk(4)[1].max().item() < 0.1


def test_digits_are_eight_steps_of_eight(make):
    model = make("lstm", (1, 8, 8), hidden=16)
    steps = []
    model.inner.register_forward_hook(lambda _, inputs, __: steps.append(tuple(inputs[0].shape)))
    assert model.features(torch.randn(3, 1, 8, 8)).shape == (3, 16)
    assert steps == [(3, 8, 8)]


def test_text_and_flat_samples_are_refused(make):
    with pytest.raises(
        Problem, match="'lstm' predicts one label per sample and cannot learn a language: use 'lstm_words'"
    ):
        make("lstm", (20,), task="language")
    with pytest.raises(Problem, match="'lstm' takes images"):
        make("lstm", (64,))
