from __future__ import annotations

import math

import pytest
import torch

from bigbatch.errors import Problem


@pytest.fixture
def words(make):
    """A small network over 11 words."""
    return make("lstm_words", (5,), 11, "language", embedding=6, hidden=7).double()


def test_size_of_the_papers_network(make, parameters):
    # 10,000 x 200; two kernels of 400 x 800, each with torch's two biases; 200 -> 10,000
    model = make("lstm_words", (20,), 10_000, "language")
    assert parameters(model) == 10_000 * 200 + 2 * (400 * 800 + 2 * 800) + 200 * 10_000 + 10_000


def test_shapes(words):
    tokens = torch.randint(11, (3, 5))
    logits, (h, c) = words(tokens)
    assert logits.shape == (3, 5, 11)
    assert h.shape == c.shape == (2, 3, 7)
    assert words.features(tokens).shape == (3, 7)
    torch.testing.assert_close(words.head(words.features(tokens)), logits[:, -1])


def test_carried_state_equals_one_long_sequence(words):
    tokens = torch.randint(11, (3, 12))
    whole, last = words(tokens)
    state = words.zero_state(3)
    pieces = []
    for piece in tokens.split(5, dim=1):  # 5, 5 and 2 steps
        logits, state = words(piece, state)
        pieces.append(logits)
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(state, last, rtol=0, atol=1e-12)
    # and it matters: from zero again, the second piece comes out differently
    assert not torch.allclose(words(tokens[:, 5:10])[0], whole[:, 5:10], atol=1e-6)


def test_streams_do_not_mix(words):
    tokens = torch.randint(11, (3, 5))
    other = tokens.clone()
    other[1] = (other[1] + 1) % 11
    before, after = words(tokens)[0], words(other)[0]
    torch.testing.assert_close(before[[0, 2]], after[[0, 2]], rtol=0, atol=1e-12)
    assert not torch.allclose(before[1], after[1], atol=1e-6)


def test_zero_state_follows_the_weights_type(words):
    h, c = words.zero_state(4)
    assert h.shape == c.shape == (2, 4, 7)
    assert h.dtype == c.dtype == torch.float64
    assert not h.any()
    assert not c.any()
    assert h.data_ptr() != c.data_ptr()


def test_uniform_initialisation_of_the_tutorial(make):
    model = make("lstm_words", (20,), 1000, "language", init_scale=0.04)
    for weight in (model.embedding.weight, model.lstm.weight_ih_l0, model.lstm.weight_hh_l1, model.head.weight):
        assert 0.0399 < weight.abs().max().item() <= 0.04
    assert 0.039 < model.head.bias.abs().max().item() <= 0.04
    assert not any(getattr(model.lstm, f"bias_{kind}_l{layer}").any() for kind in ("ih", "hh") for layer in (0, 1))


def test_tensorflow_initialisation_has_each_layers_own_fans_and_forget_gates_at_one(make):
    lstm = make("lstm_words", (20,), 50, "language", embedding=100, init="tensorflow").lstm
    # [100 + 200, 800] and [200 + 200, 800]
    assert lstm.weight_ih_l0.abs().max().item() == pytest.approx(math.sqrt(6 / 1100), rel=0.001)
    assert lstm.weight_hh_l0.abs().max().item() == pytest.approx(math.sqrt(6 / 1100), rel=0.001)
    assert lstm.weight_ih_l1.abs().max().item() == pytest.approx(math.sqrt(6 / 1200), rel=0.001)
    for layer in (0, 1):
        total = getattr(lstm, f"bias_ih_l{layer}") + getattr(lstm, f"bias_hh_l{layer}")
        assert [gate.unique().tolist() for gate in total.chunk(4)] == [[0], [1], [0], [0]]


def test_torch_initialisation_is_torchs(make):
    model = make("lstm_words", (20,), 1000, "language", init="torch")
    assert model.embedding.weight.std().item() == pytest.approx(1, rel=0.01)
    assert model.lstm.bias_hh_l0.any()


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.filterwarnings("error")
def test_dropout_acts_on_inputs_and_outputs_while_training_only(make, layers):
    model = make("lstm_words", (5,), 11, "language", hidden=1000, layers=layers, dropout=0.75)
    tokens = torch.randint(11, (1, 5))
    assert model.features(tokens).eq(0).double().mean().item() == pytest.approx(0.75, abs=0.06)
    model.eval()
    assert model.features(tokens).all()
    assert torch.equal(model.features(tokens), model.features(tokens))


def test_images_are_refused(make):
    with pytest.raises(
        Problem, match=r"'lstm_words' reads words, not samples of shape \(1, 8, 8\) with labels: use 'cn"
    ):
        make("lstm_words", (1, 8, 8))


@pytest.mark.parametrize(
    "options", [{"layers": 0}, {"hidden": 0}, {"dropout": 1}, {"init_scale": 0}, {"init": "keras"}]
)
def test_bad_options_are_refused_by_name(make, options):
    with pytest.raises(Problem, match=f"model 'lstm_words'.*{next(iter(options))}"):
        make("lstm_words", (5,), 11, "language", **options)
