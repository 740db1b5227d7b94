"""Probes put back everything that they touch, and say what is wrong with what they are given."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from analytic import NOTHING, Weights
from outside import Net
from torch import nn
from torch.nn.functional import cross_entropy

from bigbatch import parts, probes
from bigbatch.errors import Problem
from bigbatch.probes.measurement.objective import Hessian, Objective
from bigbatch.probes.sharpness import measure_sharpness

X = torch.randn(48, 1, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.randint(10, (48,), generator=torch.Generator().manual_seed(1))


def each(losses, targets):
    return cross_entropy(losses, targets, reduction="none")


ASKED = {
    "curvature": lambda model, loss: probes.curvature(model, loss, X, Y, coordinates=3),
    "gradient": lambda model, loss: probes.gradient(model, loss, (X, Y), batches=[8, 16]),
    "landscape": lambda model, loss: probes.landscape(model, loss, X, Y, points=3),
    "lipschitz": lambda model, loss: probes.lipschitz(model, loss, X, Y),
    "noise_scale": lambda model, loss: probes.noise_scale(model, loss, (X, Y), global_batch=16, batches=8),
    "ratio": lambda model, loss: probes.ratio(model, loss, X, Y),
    "sharpness": lambda model, loss: probes.sharpness(model, loss, X, Y, most_products=4, trace_products=2),
}


def everything(model):
    """All that a probe could leave behind."""
    return {
        "weights": [p.detach().clone() for p in model.parameters()],
        "buffers": [b.clone() for b in model.buffers()],
        "gradients": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "frozen": [p.requires_grad for p in model.parameters()],
        "modes": [m.training for m in model.modules()],
        "momenta": [(m.momentum, m.track_running_stats) for m in model.modules() if isinstance(m, nn.BatchNorm1d)],
        "torch": torch.get_rng_state(),
        "python": str(random.getstate()),
        "numpy": str(np.random.get_state()),
    }


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return all(same(a[key], b[key]) for key in a)
    return all(map(same, a, b)) if isinstance(a, list) else a == b


def net():
    torch.manual_seed(3)
    model = Net(dropout=0.5)
    model.layers[1].bias.requires_grad_(False)
    model.layers[3].eval()  # modes may be mixed
    each(model(X), Y).mean().backward()
    return model


@pytest.mark.parametrize("mode", ["train", "eval", None])
def test_untouched_puts_everything_back_also_after_an_error(mode):
    model = net()
    before = everything(model)
    with pytest.raises(ZeroDivisionError), probes.preserve_model(model, mode):
        assert model.layers[4].training is (mode != "eval")
        assert model.layers[1].weight.grad is None
        each(model(X), Y).mean().backward()
        model.layers[2].momentum, model.layers[2].track_running_stats = None, False
        model.layers[2].running_mean = torch.ones(32)
        model.layers[1].bias.requires_grad_(True)
        model.train()
        random.random(), np.random.random()
        raise ZeroDivisionError
    assert same(before, everything(model))


@pytest.mark.parametrize("name", ASKED)
def test_a_probe_leaves_no_trace_and_repeats_itself(name):
    model = net()
    before = everything(model)
    found = ASKED[name](model, each)
    assert same(before, everything(model))
    torch.manual_seed(99)
    assert ASKED[name](model, each) == found
    assert "mode" not in found or found["mode"] == "mixed"


def test_stride_leaves_the_step_alone():
    steps = []
    for watched in (False, True):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if watched:
            with probes.stride(model, optimizer, each, (X, Y), (X[:9], Y[:9])) as found:
                optimizer.step()
        else:
            optimizer.step()
        steps.append(everything(model))
    assert same(*steps)
    assert found["full_data"]["before"] != found["same_batch"]["before"]


def test_stride_by_hand():
    model = Weights(torch.tensor([1.0, -2.0, 4.0], dtype=torch.float64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(w, _):
        return 0.5 * w @ w

    loss(model(None), None).backward()
    with probes.stride(model, optimizer, loss, NOTHING) as found:
        optimizer.step()
    assert found["stride"] == pytest.approx(0.1 * (1 + 2 + 4) / 3)
    assert found["normalised"] == pytest.approx(7 / 3)  # the mean |g|, eq. 6
    assert found["layers"] == pytest.approx({"first": 0.15, "second": 0.4})
    assert found["first_order"] == pytest.approx(0.1 * 21)  # lr·|g|²
    assert found["same_batch"]["fall"] == pytest.approx(0.5 * 21 * (1 - 0.9**2))  # less than to first order


def test_dropout_masks_are_the_same_on_both_sides_of_a_difference():
    """Without common masks the difference of two gradients would be noise over a small radius, here about 1e4."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 30), nn.Tanh(), nn.Dropout(0.5), nn.Linear(30, 10)).double()
    found = probes.lipschitz(model, each, X.flatten(1).double(), Y, radius=1e-5)
    assert found["finite"] == pytest.approx(found["exact"], rel=1e-4)
    assert found["dropout"] == "the same masks in every evaluation"
    assert probes.lipschitz(model, each, X.flatten(1).double(), Y, mode="eval")["dropout"] == "off"


def test_what_batchnorm_did_is_said():
    assert probes.ratio(net(), each, X, Y, mode="train")["layers.1.weight"]["ratio"] > 0
    assert probes.lipschitz(net(), each, X, Y, mode="train")["batchnorm"] == "groups of 48"
    assert probes.lipschitz(net(), each, X, Y, mode="eval")["batchnorm"] == "running statistics"


def test_pieces_and_one_batch_agree_where_nothing_normalises_over_them():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).double()
    whole = Objective(model, each, X.double(), Y)
    pieces = Objective(model, cross_entropy, X.double(), Y, micro_batch=20)  # 20, 20 and 8 samples, a mean of each
    assert pieces.value() == pytest.approx(whole.value())
    vector = [torch.ones_like(p) for p in model.parameters()]
    for a, b in zip(Hessian(whole).multiply(vector), Hessian(pieces).multiply(vector), strict=True):
        assert torch.allclose(a, b)
    for a, b in zip(whole.gradient(), pieces.gradient(), strict=True):
        assert torch.allclose(a, b)


def test_a_warm_start_needs_fewer_products():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10)).double()
    options = {"eigenvalues": 1, "most_products": 60, "tolerance": 1e-4, "trace_products": 0}
    config = parts.configure("probes", {"name": "sharpness", **options})
    cold, start = measure_sharpness(Objective(model, each, X.double(), Y), config, 0)
    warm, _ = measure_sharpness(Objective(model, each, X.double(), Y), config, 0, start)
    assert warm["eigenvalues"] == pytest.approx(cold["eigenvalues"], rel=1e-3)
    assert warm["products"] < cold["products"]


def test_a_landscape_goes_on_where_it_was_interrupted(tmp_path):
    model, notes = net(), tmp_path / "slice"
    whole = probes.landscape(model, each, X, Y, points=5)
    asked = 0

    def interrupted(outputs, targets):
        nonlocal asked
        asked += 1
        if asked == 4:
            raise KeyboardInterrupt
        return each(outputs, targets)

    before = everything(model)
    with pytest.raises(KeyboardInterrupt):
        probes.landscape(model, interrupted, X, Y, points=5, progress=notes)
    assert same(before, everything(model))
    file = tmp_path / "slice.rank0"
    file.write_text(file.read_text() + "[3, 0.")  # a kill in the middle of a line
    resumed = probes.landscape(model, each, X, Y, points=5, progress=notes)
    assert resumed["reused"] == 3
    assert resumed["losses"] == whole["losses"]
    assert probes.landscape(model, each, X, Y, points=5, progress=notes)["reused"] == 5
    with pytest.raises(Problem, match=r"slice\.rank0 has points of another landscape .* remove it"):
        probes.landscape(model, each, X, Y, points=7, progress=notes)


def frozen():
    return net().requires_grad_(False)


def broken():
    model = net()
    with torch.no_grad():
        model.layers[1].weight[0, 0] = float("nan")
    return model


@pytest.mark.parametrize("name", sorted(set(ASKED) - {"landscape"}))
def test_nan_gradients_get_one_sentence(name):
    with pytest.raises(Problem, match="the gradient is not finite: probe an earlier checkpoint, or train with a lower"):
        ASKED[name](broken(), each)


def test_a_landscape_shows_nan_as_none():
    assert ASKED["landscape"](broken(), each)["losses"] == [None] * 3


@pytest.mark.parametrize("name", ASKED)
def test_a_model_without_parameters_gets_one_sentence(name):
    with pytest.raises(Problem, match=r"Net has no trainable parameters to probe: unfreeze some, or give another"):
        ASKED[name](frozen(), each)


@pytest.mark.parametrize("name", ASKED)
def test_a_loss_of_a_wrong_shape_gets_one_sentence(name):
    with pytest.raises(Problem, match=r"the loss has shape \(\d+, 10\) for \d+ samples: return the mean over samples"):
        ASKED[name](net(), lambda outputs, targets: outputs)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            lambda: probes.gradient(net(), cross_entropy, (X, Y), batches=[8, 16]),
            r"shape \(\) for 8 samples, but this probe needs each sample's own: return one loss per sample",
        ),
        (
            lambda: probes.gradient(net(), each, (X, Y), batches=[8, 64]),
            "cannot draw a batch of 64 from 48 samples: use batches of at most 48",
        ),
        (lambda: probes.gradient(net(), each, (X, Y), layer="layers.1.wieght"), "did you mean 'layers.1.weight'"),
        (
            lambda: probes.noise_scale(net(), each, (X, Y), global_batch=64),
            "cannot draw a batch of 64 from 48 samples: use at most 48",
        ),
        (
            lambda: probes.noise_scale(net(), each, (X, Y), global_batch=16, micro_batch=16),
            "use a micro_batch of at most 8",
        ),
        (lambda: probes.lipschitz(net(), each, X, Y, radius=0), "radius should be greater than 0; got 0"),
        (lambda: probes.landscape(net(), each, X, Y, dimensions=3), "dimensions should be 1 or 2; got 3"),
        (lambda: probes.sharpness(net(), each, X, Y, eigenvalues=0), "eigenvalues should be greater than 0; got 0"),
        (lambda: probes.noise_scale(net(), each, (X, Y), global_batch=8, batches=2), "batches should be greater than"),
        (lambda: probes.gradient(net(), each, X), "Tensor cannot be probed with: give"),
        (lambda: probes.lipschitz(net(), lambda out, y: y.float().mean(), X, Y), "does not depend on the model"),
        (lambda: probes.lipschitz(Weights(), lambda w, _: 0 * w.sum(), *NOTHING), "the gradient is zero"),
        (lambda: probes.ratio(net().requires_grad_(True).apply(lambda m: m.zero_grad())), "call it after backward"),
        (lambda: probes.lipschitz(net(), each, X[:0], Y[:0]), "there are no samples to probe with"),
    ],
)
def test_bad_input_gets_one_sentence_that_ends_in_an_action(asked, sentence):
    with pytest.raises(Problem, match=sentence):
        asked()
