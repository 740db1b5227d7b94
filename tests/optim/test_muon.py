"""Muon by hand, against a float64 oracle through singular values, and which tensors it orthogonalises."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from bigbatch import datasets, layers, models, parts
from bigbatch.optim import Muon
from bigbatch.optim.muon import orthogonalize

STEPS = 3


def quintic(x, steps=5):
    for _ in range(steps):
        x = 3.4445 * x - 4.7750 * x**3 + 2.0315 * x**5
    return x


def orthogonal(matrix):
    """The oracle: the polynomial acts on the singular values alone."""
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    return u @ np.diag(quintic(s / np.sqrt((s**2).sum()))) @ vt


def oracle(w, gradients, *, lr, momentum, weight_decay, nesterov=True, blocks=1, scale="spectral"):
    m = np.zeros_like(w)
    for g in gradients:
        m = momentum * m + (1 - momentum) * g
        direction = momentum * m + (1 - momentum) * g if nesterov else m
        matrices = np.split(direction.reshape(len(w), -1), blocks)
        rows, columns = matrices[0].shape
        s = max(1, rows / columns) ** 0.5 if scale == "spectral" else 0.2 * max(rows, columns) ** 0.5
        update = s * np.concatenate([orthogonal(matrix) for matrix in matrices]).reshape(w.shape)
        w = (1 - lr * weight_decay) * w - lr * update
    return w


def train(starts, gradients, **options):
    weights = [nn.Parameter(torch.tensor(start)) for start in starts]
    optimizer = Muon([(f"layer{number}.weight", weight) for number, weight in enumerate(weights)], **options)
    for at_step in gradients:
        for weight, gradient in zip(weights, at_step, strict=True):
            weight.grad = torch.tensor(gradient)
        optimizer.step()
    return [weight.detach().numpy() for weight in weights]


def test_first_step_by_hand():
    # singular values 3 and 4 over the norm 5: .6 and .8, five times through the polynomial, the first time to
    # 3.4445·.6 − 4.775·.216 + 2.0315·.07776 = 1.19327. Whatever multiplies the gradient cancels. 1 decays by .1·.5.
    assert quintic(0.6, steps=1) == pytest.approx(1.19327, abs=1e-5)
    found = train([np.diag([1.0, 1.0])], [[np.diag([3.0, 4.0])]], lr=0.1, weight_decay=0.5, min_side=1)
    np.testing.assert_allclose(found[0], np.diag([0.95 - 0.1 * quintic(0.6), 0.95 - 0.1 * quintic(0.8)]), rtol=1e-12)


def test_singular_values_end_near_one():
    matrices = torch.randn(3, 40, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    singular = torch.linalg.svdvals(orthogonalize(matrices))
    assert 0.68 < singular.min() < singular.max() < 1.14
    assert orthogonalize(torch.zeros(1, 3, 4)).eq(0).all()


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("scale", ["spectral", "adam"])
def test_follows_its_oracle(nesterov, scale):
    rng = np.random.default_rng(0)
    # equal shapes, one taller than wide, a convolution, and one that holds two matrices
    shapes, blocks = [(4, 6), (4, 6), (7, 3), (5, 2, 2, 3), (8, 3)], [1, 1, 1, 1, 2]
    starts = [rng.normal(size=shape) for shape in shapes]
    gradients = [[rng.normal(size=shape) for shape in shapes] for _ in range(STEPS)]
    options = {"lr": 0.3, "momentum": 0.8, "weight_decay": 0.1, "nesterov": nesterov, "scale": scale}
    found = train(starts, gradients, **options, min_side=1, blocks={"layer4.*": 2})
    for index, (weight, start) in enumerate(zip(found, starts, strict=True)):
        expected = oracle(start, [at_step[index] for at_step in gradients], **options, blocks=blocks[index])
        np.testing.assert_allclose(weight, expected, rtol=1e-11, atol=1e-11)


def test_agrees_with_torch_within_its_bfloat16():
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (nn.Parameter(torch.zeros(24, 16)) for _ in range(2))
    optimizers = Muon([ours], lr=0.1), torch.optim.Muon([theirs], lr=0.1, weight_decay=0.0)
    for _ in range(STEPS):
        gradient = torch.randn(24, 16, generator=generator)
        for weight, optimizer in zip((ours, theirs), optimizers, strict=True):
            weight.grad = gradient.clone()
            optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0.01)
    assert ours.abs().max() > 0.1


def test_the_rest_takes_adamws_steps():
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (nn.Parameter(torch.ones(5)) for _ in range(2))
    adamw = torch.optim.AdamW([theirs], lr=0.1 * 0.15, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.2, fused=True)
    optimizer = Muon([ours], lr=0.1, weight_decay=0.2)
    for _ in range(STEPS):
        ours.grad = torch.randn(5, generator=generator)
        theirs.grad = ours.grad.clone()
        optimizer.step()
        adamw.step()
    assert torch.equal(ours, theirs)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 16)
        self.lstm = nn.LSTM(16, 16, proj_size=12)
        self.gru = nn.GRU(12, 16, bidirectional=True)
        self.plain = nn.RNNCell(32, 16)
        self.attention = nn.MultiheadAttention(16, 2)
        self.qkv = nn.Linear(16, 48)
        self.convolution = nn.Conv2d(12, 12, 3)
        self.narrow = nn.Linear(16, 10)
        self.head = nn.Linear(16, 30)


def test_which_tensors_are_orthogonalised():
    found = {
        name: group["row_blocks"]
        for group in Muon(Recurrent()).param_groups
        if group["use_muon"]
        for name in group["param_names"]
    }
    assert found == {
        "lstm.weight_ih_l0": 4,
        "lstm.weight_hh_l0": 4,
        "lstm.weight_hr_l0": 1,
        **{f"gru.weight_{kind}_l0{direction}": 3 for kind in ("ih", "hh") for direction in ("", "_reverse")},
        "plain.weight_ih": 1,
        "plain.weight_hh": 1,
        "attention.in_proj_weight": 3,
        "attention.out_proj.weight": 1,
        "qkv.weight": 3,
        "convolution.weight": 1,
    }


def test_a_tied_head_is_the_embedding_and_no_hidden_matrix_takes_its_place():
    model = nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 16), nn.Linear(16, 30, bias=False))
    assert layers.matrix_blocks(model) == {"1.weight": 1}
    model[2].weight = model[0].weight
    assert layers.matrix_blocks(model) == {"1.weight": 1}


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm", "resnet_cifar"])
def test_the_heads_of_our_models_are_found(name):
    dataset = datasets.load(parts.configure("datasets", "synthetic"))
    model = models.build(parts.configure("models", name), dataset)
    matrices = {name: len(weight) for name, weight in model.named_parameters() if weight.ndim >= 2}
    left_out = matrices.keys() - layers.matrix_blocks(model).keys()
    assert [matrices[name] for name in left_out] == [len(dataset.classes)]


def test_each_gate_is_a_matrix_of_its_own():
    model = nn.LSTM(12, 12)
    before = model.weight_hh_l0.detach().clone()
    optimizer = Muon([("weight_hh_l0", model.weight_hh_l0)], blocks={"*": 4})
    model.weight_hh_l0.grad = torch.zeros(48, 12)
    model.weight_hh_l0.grad[12:24] = 1e-3 * torch.eye(12)
    optimizer.step()
    moved = (model.weight_hh_l0 - before).view(4, 12, 12)
    assert [gate.abs().sum().item() > 0 for gate in moved] == [False, True, False, False]
    # 12 equal singular values of 1/√12, whatever the size of the gradient
    torch.testing.assert_close(moved[1], -0.02 * quintic(12**-0.5) * torch.eye(12))


def test_names_decide_where_asked_and_wrong_ones_are_refused():
    model = Recurrent()
    groups = Muon(model, adamw=("lstm.*",), blocks={"convolution.weight": 1, "qkv.weight": 1}).param_groups
    found = {name: group["row_blocks"] for group in groups if group["use_muon"] for name in group["param_names"]}
    assert found["qkv.weight"] == 1
    assert not any(name.startswith("lstm") for name in found)
    with pytest.raises(ValueError, match=r"qkv.weight has 48 rows, which 5 blocks do not divide: change blocks"):
        Muon(model, blocks={"qkv.weight": 5})
    with pytest.raises(ValueError, match="the parameters have no names: pass the model"):
        Muon(model.parameters(), blocks={"qkv.weight": 3})
    with pytest.raises(ValueError, match=r"momentum should be less than 1, got 1.5"):
        Muon(model, momentum=1.5)


def test_groups_say_themselves_what_they_are():
    weight, vector = nn.Parameter(torch.zeros(12, 4)), nn.Parameter(torch.zeros(12, 12))
    groups = [{"params": weight, "use_muon": True, "row_blocks": 3}, {"params": [vector], "use_muon": False, "lr": 0.5}]
    optimizer = Muon(groups)
    weight.grad = vector.grad = None
    vector.grad = torch.ones(12, 12)
    optimizer.step()
    assert weight.eq(0).all()  # no gradient, no step
    torch.testing.assert_close(vector, torch.full((12, 12), -0.5 * 0.15))


def test_a_step_of_a_closure_returns_its_loss():
    weight = nn.Parameter(torch.eye(12))
    optimizer = Muon([weight])

    def closure():
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 12
    assert closure().item() < 12
