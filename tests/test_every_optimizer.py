"""Every optimizer keeps its contract; new files are found by looking at the folder."""

from __future__ import annotations

import pytest
import torch
from small import final_weights, same_bits, small_run

import bigbatch
from bigbatch import optim, parts
from bigbatch.artifacts.metrics import read_rows
from bigbatch.errors import Problem, Stopped
from bigbatch.launch.signals import StopRequest
from bigbatch.testing import CheckedPart, find_checks
from bigbatch.testing.optim import check_learns_digits
from bigbatch.trust import trust_typed

# the paper's trust coefficient goes with learning rates of 2 to 40
OPTIONS = {"lars": {"trust_coefficient": 0.02}}


@pytest.mark.parametrize("check", find_checks("optim"))
@pytest.mark.parametrize("name", parts.names("optim"))
def test_contract(name, check):
    check(CheckedPart("optim", name, OPTIONS.get(name, {})))


def test_measured_curvature_learns_digits():
    check_learns_digits(CheckedPart("optim", "curvature", {"hessian": "hutchinson", "lr": 0.5}))


@pytest.mark.parametrize("name", parts.names("optim"))
@pytest.mark.parametrize("wrong", [{"lr": -1}, {"lr": float("nan")}, {"weight_decay": -0.1}, {"lrr": 0.1}])
def test_a_refusal_names_the_optimizer_and_the_option(name, wrong):
    with pytest.raises(Problem, match=rf"optimizer '{name}'.*{next(iter(wrong))}"):
        parts.configure("optim", {"name": name, **wrong})


@pytest.mark.parametrize("name", [*parts.names("optim"), "torch.optim:NAdam", "torch.optim:Rprop"])
def test_a_run_stopped_in_an_epoch_resumes_bit_for_bit(name, tmp_path, monkeypatch):
    run = small_run(optimizer={"name": name, "lr": 0.01, **OPTIONS.get(name, {})})
    bigbatch.train(run, runs_dir=tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "received", property(lambda self: True, lambda self, value: None), raising=False)
        for _ in range(3):  # after each of the first steps
            with pytest.raises(Stopped):
                bigbatch.train(run, runs_dir=tmp_path / "stopped")
    bigbatch.train(run, runs_dir=tmp_path / "stopped")
    whole, stopped = (final_weights(tmp_path / folder / run.folder_name) for folder in ("whole", "stopped"))
    assert same_bits(whole, stopped)


def test_an_optimizer_from_outside_takes_its_options_and_the_lr_of_the_schedule(tmp_path):
    run = small_run(
        optimizer={"name": "torch.optim:NAdam", "lr": 0.01, "momentum_decay": 0.1},
        schedule={"name": "legw", "baseline_batch": 64, "warmup_epochs": 0.25, "decay": {"kind": "constant"}},
    )
    optimizer = optim.build(run.optimizer, [("weight", torch.nn.Parameter(torch.zeros(2)))])
    assert isinstance(optimizer, torch.optim.NAdam)
    assert (optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum_decay"]) == (0.01, 0.1)
    assert not optim.needs_closure(optimizer)
    bigbatch.train(run, runs_dir=tmp_path)
    lrs = [row["lr"] for row in read_rows(tmp_path / run.folder_name / "metrics.jsonl") if "lr" in row]
    assert lrs[0] < lrs[1] < lrs[-1] == pytest.approx(0.02)  # 4 times the batch: 2 times the lr


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("adam", "adam_sde"),
        ("adamw", "adam_sde"),
        ("lamb", "legw"),
        ("momentum", "legw"),
        ("torch.optim:RAdam", "adam_sde"),
        ("torch.optim:SGD", "legw"),
    ],
)
def test_optimizers_of_the_adam_family_scale_by_its_rule(name, rule):
    trust_typed(name)
    assert parts.configure("optim", {"name": name, "lr": 0.1}).scaling_rule == rule


def test_adamw_decays_weights_apart_from_the_gradient():
    # the first step is lr·sign(g), whatever g: w = 2 − .1·1 − .1·.5·2; L2 in the gradient would give 1.9
    weight = torch.nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    weight.grad = torch.tensor([3.0], dtype=torch.float64)
    optim.build(parts.configure("optim", {"name": "adamw", "lr": 0.1, "weight_decay": 0.5}), [("w", weight)]).step()
    assert weight.item() == pytest.approx(1.8, abs=1e-8)


def test_classes_are_offered_by_the_package():
    from bigbatch.optim import LAMB, LARS, Curvature, MedianCurvature, PercentDelta

    assert all(
        issubclass(kind, torch.optim.Optimizer) for kind in (LAMB, LARS, Curvature, MedianCurvature, PercentDelta)
    )
    with pytest.raises(AttributeError, match="has no attribute 'LARSS'"):
        _ = optim.LARSS
