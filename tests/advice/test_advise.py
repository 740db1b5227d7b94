"""`bigbatch.advise` for a module of one's own: what it answers, that it leaves no trace, and what it refuses."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import pytest
import torch
from advice_learner import learner_of
from analytic import half_square, regression
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bigbatch
from bigbatch import rng
from bigbatch.advice import Advice
from bigbatch.advice.noise import sample_noise_quickly
from bigbatch.errors import Problem

cross_entropy = nn.functional.cross_entropy
QUICK = {"seconds": 2.0, "steps": 6, "batches": [8, 16, 32, 64, 128], "lr": 0.05, "batch": 32}


class Net(nn.Module):
    """BatchNorm, dropout and a frozen tensor: what is most easily disturbed."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))
        self.scale = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.layers(x)


def samples(count=300, width=12, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=generator)
    return x, (x[:, :classes] + 0.5 * torch.randn(count, classes, generator=generator)).argmax(dim=1)


@pytest.fixture(scope="module")
def advised():
    """One answer, and the traces that it left."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Net()
    data = samples()
    model.layers[1].eval()  # a mode of its own for one module
    cross_entropy(model(data[0]), data[1]).backward()
    tensors = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
    modes = [module.training for module in model.modules()]
    generators = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    advice = bigbatch.advise(model, cross_entropy, data, verify=True, epochs=3, **QUICK)
    same = {
        "weights and buffers": all(torch.equal(value, tensors[name]) for name, value in model.state_dict().items()),
        "gradients": all(
            p.grad is None if gradients[name] is None else torch.equal(p.grad, gradients[name])
            for name, p in model.named_parameters()
        ),
        "modes": [module.training for module in model.modules()] == modes,
        "frozen": not model.scale.requires_grad,
        "torch's random numbers": torch.equal(torch.get_rng_state(), generators[0]),
        "NumPy's random numbers": bool((np.random.get_state()[1] == generators[1]).all()),
        "Python's random numbers": random.getstate() == generators[2],
    }
    return advice, same


def test_nothing_of_the_model_is_changed_with_batchnorm_and_dropout(advised):
    assert [name for name, kept in advised[1].items() if not kept] == []


def test_the_answer_is_whole(advised):
    advice = advised[0]
    found = json.loads(advice.to_json(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert {"batch", "interval", "grade", "noise_scale", "memory_cap", "schedule"} <= found.keys()
    assert found["batch"] in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    assert len(found["interval"]) == 2
    assert found["grade"] in ("high", "medium", "low")
    assert found["reasons"]
    assert found["noise_scale"] > 0
    assert found["memory_cap"] > 300
    assert set(found["schedule"]) == {"baseline", "legw", "linear", "lars"}
    assert found["schedule"]["baseline"] == {"lr": 0.05, "global_batch": 32, "warmup_epochs": 0.0}
    assert found["step_times"]["batches"] == QUICK["batches"]
    assert found["about"]["batchnorm"] == "groups of 32"
    assert found["about"]["dropout"] == "the same masks in every evaluation"
    assert found["about"]["steps_trained_here"] == 6
    assert [layer["name"] for layer in found["layers"]] == [
        f"layers.{n}.{p}" for n in (0, 1, 4) for p in ("weight", "bias")
    ]
    assert found["verified"]["branches"][1]["batch"] <= 300


def test_one_screen_holds_it(advised, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    advised[0].show()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)  # plain where it is no terminal
    for word in ("Net:", "grade", "noise scale", "LEGW", "LARS", "verified"):
        assert word in "\n".join(lines)


def test_the_page_is_whole_and_fetches_nothing(advised, tmp_path):
    path = advised[0].write(tmp_path / "new" / "folder")
    text = path.read_text(encoding="utf-8")
    assert json.loads((path.parent / "advise.json").read_text())["of"] == "Net"
    assert text.count("<svg") == 7
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*', text) == []
    for heading in (
        "Progress per second",
        "Noise scale over training",
        "Mean |g| of",
        "Stride of a step",
        "Curvature along",
    ):
        assert heading in text
    for said in (
        "orders of magnitude",
        "further doublings",
        "Overhead:",
        "BatchNorm:",
        "radius",
        "Seed 0",
        "Prior, not mixed in",
        "layers.0.weight",
        "2/lr",
    ):
        assert said in text
    assert sorted(path.name for path in path.parent.iterdir()) == ["advise.html", "advise.json"]


def test_mean_and_single_losses_say_the_same():
    model, data = regression(0)
    single = sample_noise_quickly(learner_of(model, data))
    mean = sample_noise_quickly(
        learner_of(model, data, loss=lambda outputs, targets: half_square(outputs, targets).mean())
    )
    assert single.noise == pytest.approx(mean.noise)
    assert single.signal == pytest.approx(mean.signal)


@pytest.mark.parametrize("optimizer", ["lars", {"name": "adam"}, torch.optim.Adagrad], ids=str)
def test_loaders_and_any_optimizer_will_do(optimizer):
    loader = DataLoader(TensorDataset(*samples()), batch_size=50)
    advice = bigbatch.advise(Net(), nn.CrossEntropyLoss(), loader, optimizer=optimizer, **QUICK)
    assert isinstance(advice, Advice)
    assert advice.data_cap == 300


def test_the_lr_climbs_through_the_warm_up():
    learner = learner_of(*regression(0, samples=640), lr=0.1, warmup_epochs=0.5)
    seen = []
    for _ in range(7):
        seen.append(learner.lr())
        learner.step(64)
    assert seen == pytest.approx([0.01, 0.03, 0.05, 0.07, 0.09, 0.1, 0.1])  # at the middle of each batch
    assert learner.warmup_is_over


def test_what_is_tried_out_is_taken_back():
    model, data = regression(0)
    learner = learner_of(model, data, optimizer="momentum", lr=0.01)
    learner.step(64)
    before = learner.model.weight.detach().clone(), learner.optimizer.state_dict(), learner.steps
    with learner.undo_steps():
        first = [learner.step(32) for _ in range(3)]
    assert torch.equal(learner.model.weight, before[0])
    assert learner.steps == before[2]
    with learner.undo_steps():
        assert [learner.step(32) for _ in range(3)] == first  # the same samples, the same momentum


class Hollow(nn.Module):
    def forward(self, x):
        return x


class Rootless(nn.Module):
    """√0 has a finite value and no finite slope."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        return self.head(x) + (0 * self.head.weight.sum()).sqrt()


class Blind(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        return x[:, :4]


def uneven(outputs, targets):
    return (outputs - 1).square()


def summed(outputs, targets):
    return cross_entropy(outputs, targets, reduction="sum")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"model": Hollow()}, "Hollow has no trainable parameters to probe: unfreeze some, or give another model"),
        ({"model": 3}, "int is not a torch.nn.Module"),
        ({"model": Blind()}, "the loss does not depend on the model's parameters"),
        ({"model": Rootless()}, "the gradient is not finite"),
        ({"loss": uneven}, r"the loss has shape \(8, 4\) for 8 samples: return the mean over samples, or one loss"),
        ({"loss": summed}, "the loss is a sum over samples"),
        ({"data": (torch.full((40, 12), float("nan")), torch.zeros(40).long())}, "the loss is not finite"),
        ({"batches": [32, 64, 4096]}, "a batch of 4096 is larger than the 300 samples: give at most 300"),
        ({"batches": [32, 64]}, "do not define a line: give three or more increasing numbers"),
        ({"batches": [64, 32, 16]}, "do not define a line: give three or more increasing numbers"),
        ({"batch": 301}, "batch 301 is not between 1 and the 300 samples"),
        ({"data": 7}, "int cannot be probed with"),
        ({"lr": -1.0}, "lr should be greater than or equal to 0"),
        ({"lr": 0.0}, "lr is 0.0: give a finite number above 0"),
        ({"lr": 1e30}, "the loss was not finite at step 2 with lr 1e.30: give a lower learning rate"),
        ({"optimizer": "lasr"}, "no optimizer called 'lasr'; did you mean 'lars'"),
        ({"optimizer": 5}, "neither a name nor a class"),
        ({"seconds": 0.0}, "seconds must be a finite number above 0, got 0.0"),
        ({"seconds": float("inf")}, "seconds must be a finite number above 0, got inf: give"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_bad_input_gets_one_clear_sentence(changed, sentence):
    about = {"model": Net(), "loss": cross_entropy, "data": samples(), **QUICK} | changed
    with pytest.raises(Problem, match=sentence) as caught:
        bigbatch.advise(about.pop("model"), about.pop("loss"), about.pop("data"), **about)
    assert "\n" not in str(caught.value)


def test_a_step_draws_no_order_of_its_own(monkeypatch):
    """The order is drawn once per epoch, as in a training: drawn in every step, it would count as its fixed cost."""
    drawn = []
    permutation = rng.permutation
    monkeypatch.setattr(rng, "permutation", lambda *key: drawn.append(key) or permutation(*key))
    learner = learner_of(*regression(0, samples=640))
    drawn.clear()
    for _ in range(100):  # ten epochs
        learner.step(64)
    assert len(drawn) == 10
    for _ in range(10):
        learner.step(1)
    assert len(drawn) == 11
