"""Every optimizer keeps its contract; new files are found by looking at the folder."""

from __future__ import annotations

import pytest
import torch

from bigbatch import optim, parts
from bigbatch.errors import Problem
from bigbatch.testing import CheckedPart, find_checks
from bigbatch.testing.optim import check_learns_digits

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


def test_an_optimizer_from_outside_is_built_with_its_options():
    config = parts.configure("optim", {"name": "torch.optim:NAdam", "lr": 0.01})
    optimizer = optim.build(config, [("weight", torch.nn.Parameter(torch.zeros(2)))])
    assert isinstance(optimizer, torch.optim.NAdam)
    assert optimizer.param_groups[0]["lr"] == 0.01
    assert not optim.needs_closure(optimizer)


def test_classes_are_offered_by_the_package():
    from bigbatch.optim import LAMB, LARS, Curvature, MedianCurvature, PercentDelta

    assert all(
        issubclass(kind, torch.optim.Optimizer) for kind in (LAMB, LARS, Curvature, MedianCurvature, PercentDelta)
    )
    with pytest.raises(AttributeError, match="has no attribute 'LARSS'"):
        _ = optim.LARSS
