"""Which tensors are exempt from layer-wise learning rates: by rule, per group, visible and restored."""

from __future__ import annotations

import io

import pytest
import torch

from bigbatch import layers
from bigbatch.optim import LAMB, LARS, Curvature, MedianCurvature, PercentDelta

ALL = [LARS, LAMB, PercentDelta, MedianCurvature, Curvature]


def test_rules():
    tensors = [torch.zeros(2, 2), torch.zeros(2), torch.zeros(())]
    assert layers.apply_exclusion_rule("one_dimensional", tensors) == [False, True, True]
    assert layers.apply_exclusion_rule("none", tensors) == [False, False, False]
    assert layers.apply_exclusion_rule("all", tensors) == [True, True, True]
    assert layers.apply_exclusion_rule(lambda tensor: tensor.numel() == 4, tensors) == [True, False, False]
    assert layers.apply_exclusion_rule(lambda name, tensor: name == "b", tensors, ["a", "b", "c"]) == [
        False,
        True,
        False,
    ]


def test_a_rule_about_names_needs_names():
    with pytest.raises(ValueError, match=r"pass model\.named_parameters"):
        LARS(torch.nn.Linear(2, 2).parameters(), lr=0.1, exclude=lambda name, parameter: "bias" in name)
    optimizer = LARS(torch.nn.Linear(2, 2).named_parameters(), lr=0.1, exclude=lambda name, _: "weight" in name)
    assert optimizer.param_groups[0]["excluded"] == [True, False]


@pytest.mark.parametrize("kind", ALL)
def test_excluded_tensors_take_the_plain_lr_and_still_decay(kind):
    weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    weight.grad = torch.tensor([0.5, -0.5])
    kind([weight], lr=0.1, weight_decay=0.2).step()
    direction = torch.tensor([1.0, -1.0]) if kind is LAMB else weight.grad  # LAMB's first direction is the sign
    expected = torch.tensor([3.0, 4.0]) - 0.1 * (direction + 0.2 * torch.tensor([3.0, 4.0]))
    torch.testing.assert_close(weight.detach(), expected, rtol=1e-5, atol=1e-6)


def test_no_weight_decay_does_not_switch_scaling_off():
    weight = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
    weight.grad = torch.tensor([[0.6, 0.8]])
    LARS([weight], lr=1.0, weight_decay=0.0, trust_coefficient=0.1).step()
    torch.testing.assert_close(weight.detach(), torch.tensor([[2.7, 3.6]]))  # λ = .1·5/1


def test_each_group_has_its_rule_and_a_saved_state_shows_and_restores_it():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))

    def named_groups(first, second):
        return [{"params": model[0].parameters(), "exclude": first}, {"params": model[1].parameters(), **second}]

    def only_biases(parameter):
        return parameter.ndim == 1

    saved = LARS(named_groups("none", {"exclude": only_biases}), lr=0.1).state_dict()
    shown = [(group["exclude"].rpartition(".")[2], group["excluded"]) for group in saved["param_groups"]]
    assert shown == [("none", [False, False]), ("only_biases", [False, True])]

    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    other = LARS(named_groups("all", {}), lr=0.5, exclude="all")
    other.load_state_dict(torch.load(file, weights_only=True))
    assert [group["excluded"] for group in other.param_groups] == [[False, False], [False, True]]
    assert other.state_dict() == saved
