"""No estimate is negative or zero, whatever the model: what cannot be told is said to be unknown."""

from __future__ import annotations

import json
import random
import re

import pytest
import torch
from torch import nn

import bigbatch

QUICK = {"seconds": 0.05, "steps": 3}


def random_problem(seed: int):
    """A small network of any width and depth, with few or many samples, noisy, repeated or identical ones."""
    chosen = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    width, hidden, outputs = chosen.choice([1, 3, 20]), chosen.choice([1, 4, 32]), chosen.choice([1, 3])
    activation = chosen.choice([nn.ReLU, nn.Tanh, nn.Identity])
    layers = [nn.Linear(width, hidden), activation(), nn.Linear(hidden, outputs, bias=chosen.random() < 0.5)]
    model = nn.Sequential(*layers) if chosen.random() < 0.7 else nn.Linear(width, outputs)
    count = chosen.choice([16, 60, 400])
    x = chosen.choice([1e-3, 1.0, 30.0]) * torch.randn(count, width, generator=generator)
    noise = chosen.choice([0.0, 0.1, 10.0]) * torch.randn(count, outputs, generator=generator)
    y = x.sum(dim=1, keepdim=True) + noise
    kind = chosen.choice(["distinct", "distinct", "repeated", "identical"])
    if kind != "distinct":
        distinct = 1 if kind == "identical" else count // 4
        x, y = x[:distinct].repeat(count // distinct, 1), y[:distinct].repeat(count // distinct, 1)
    optimizer = chosen.choice(["sgd", "momentum", "adam", torch.optim.AdamW])
    about = {"optimizer": optimizer, "lr": 1e-6, "batch": chosen.choice([1, 4, 16]), "seed": seed}
    return model, (x, y), about


def estimates(found, path=""):
    """All numbers under names of estimates, with where they are."""
    if isinstance(found, dict):
        for name, value in found.items():
            yield from estimates(value, f"{path}.{name}")
    elif isinstance(found, list):
        for value in found:
            yield from estimates(value, path)
    elif isinstance(found, int | float) and re.search(
        r"^\.(noise_scale|optimum|interval|fraction_of_best|batch$|expected|goodput|over_training\.(estimate|interval))"
        r"|noise_scale$",
        path,
    ):
        yield path, found


@pytest.mark.parametrize("group", range(5))
def test_fifty_random_models_get_no_negative_or_zero_estimate(group, capsys):
    for seed in range(10 * group, 10 * group + 10):
        model, data, about = random_problem(seed)
        advice = bigbatch.advise(model, nn.functional.mse_loss, data, **about, **QUICK)
        found = list(estimates(json.loads(advice.to_json())))
        assert found
        assert [(seed, path, value) for path, value in found if value <= 0] == []
        advice.show()
        printed = capsys.readouterr().out
        wrong = re.search(r"(?<![\dek,])-\d|(?<![\d.,])0(?:\.0*)? (?:to|or more|\()|at most 0\b|batch, 0\b", printed)
        assert not wrong, printed


def test_identical_samples_have_no_noise_scale_and_it_is_said(capsys):
    torch.manual_seed(0)
    x = torch.randn(1, 5).repeat(64, 1)
    advice = bigbatch.advise(nn.Linear(5, 2), nn.functional.mse_loss, (x, x[:, :2]), lr=0.01, batch=16, **QUICK)
    assert (advice.noise_scale, advice.optimum, advice.batch, advice.grade) == (None, None, 16, "low")
    assert "all samples have the same gradient" in advice.reasons[0]
    assert any("check how the data is read" in warning for warning in advice.warnings)
    assert not any("lower bound" in warning for warning in advice.warnings)
    advice.show()
    assert capsys.readouterr().out.count("cannot tell") == 3  # the grade, B* and the noise scale


def test_a_module_trained_by_adamw_is_told_that_the_noise_scale_is_that_of_the_plain_gradient():
    torch.manual_seed(0)
    x = torch.randn(200, 5)
    about = {"lr": 1e-3, "batch": 16, "seconds": 0.5, "steps": 3}
    advice = bigbatch.advise(
        nn.Linear(5, 2), nn.functional.mse_loss, (x, x[:, :2]), optimizer=torch.optim.AdamW, **about
    )
    assert any("plain gradient, which AdamW rescales" in warning for warning in advice.warnings)
    assert set(advice.schedule) == {
        "baseline",
        "legw",
        "linear",
    }  # LARS' coefficient is for a plain gradient's lr
    plain = bigbatch.advise(nn.Linear(5, 2), nn.functional.mse_loss, (x, x[:, :2]), optimizer="nesterov", **about)
    assert not any("plain gradient" in warning for warning in plain.warnings)
    assert "lars" in plain.schedule
