"""Every constructor argument does something, and wrong ones are refused in a sentence that names them."""

from __future__ import annotations

import inspect

import pytest
import torch

from bigbatch.optim import LAMB, LARS, Curvature, MedianCurvature, PercentDelta
from bigbatch.optim.layerwise.kernels import choose_implementation

ALL = [LARS, LAMB, PercentDelta, MedianCurvature, Curvature]

# a value that must lead elsewhere, and what else must be set for it to matter
CHANGES = {
    LARS: {
        "lr": (0.2, {}),
        "momentum": (0.5, {}),
        "weight_decay": (0.1, {}),
        "trust_coefficient": (0.02, {}),
        "eps": (0.1, {}),
        "nesterov": (True, {}),
        "maximize": (True, {}),
        "norm": ("joint", {"weight_decay": 0.1}),
        "momentum_form": ("outside", {}),
        "trust_clip": (True, {"trust_coefficient": 10.0}),
        "exclude": ("none", {}),
    },
    LAMB: {
        "lr": (0.2, {}),
        "betas": ((0.5, 0.9), {}),
        "eps": (0.1, {}),
        "weight_decay": (0.1, {}),
        "maximize": (True, {}),
        "bias_correction": (False, {}),
        "trust_clip": (True, {}),
        "exclude": ("none", {}),
    },
    PercentDelta: {
        "lr": (0.2, {}),
        "momentum": (0.5, {}),
        "weight_decay": (0.1, {}),
        "trust_coefficient": (0.02, {}),
        "eps": (0.1, {}),
        "nesterov": (True, {}),
        "maximize": (True, {}),
        "exclude": ("none", {}),
    },
    MedianCurvature: {
        "lr": (0.2, {}),
        "momentum": (0.5, {}),
        "weight_decay": (0.1, {}),
        "trust_coefficient": (0.02, {}),
        "eps": (0.1, {}),
        "nesterov": (True, {}),
        "maximize": (True, {}),
        "median": ("signed", {}),
        "exclude": ("none", {}),
    },
    Curvature: {
        "lr": (0.2, {}),
        "momentum": (0.5, {}),
        "weight_decay": (0.1, {}),
        "maximize": (True, {}),
        "hessian": ("exact", {}),
        "samples": (3, {"hessian": "hutchinson", "max_radius": 100.0}),
        "max_radius": (0.01, {}),
        "seed": (1, {"hessian": "hutchinson", "max_radius": 100.0}),
        "exclude": ("none", {}),
    },
}
PATH_ARGUMENTS = {"foreach", "fused"}


def weights_after_steps(kind, **options):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2).double()
    with torch.no_grad():
        model.weight.mul_(10)  # LAMB's ratio exceeds 1, so that clipping it shows
    inputs = torch.randn(6, 3, dtype=torch.float64)
    optimizer = kind(model.parameters(), **{"lr": 0.1, **options})
    for lr in (1.0, 0.5, 0.1):
        optimizer.param_groups[0]["lr"] *= lr
        optimizer.zero_grad()

        def loss():
            return (model(inputs).tanh() - 0.3).pow(4).sum()

        if optimizer.needs_closure:
            optimizer.step(loss)
        else:
            loss().backward()
            optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("kind", ALL)
def test_the_table_of_arguments_is_complete(kind):
    arguments = set(inspect.signature(kind).parameters) - {"params"} - PATH_ARGUMENTS
    assert arguments == set(CHANGES[kind])


@pytest.mark.parametrize(("kind", "argument"), [(kind, argument) for kind in ALL for argument in CHANGES[kind]])
def test_every_argument_changes_where_training_goes(kind, argument):
    value, needed = CHANGES[kind][argument]
    changed = weights_after_steps(kind, **{**needed, argument: value})
    assert (changed - weights_after_steps(kind, **needed)).abs().max() > 1e-9


@pytest.mark.parametrize("kind", [LARS, LAMB, PercentDelta, MedianCurvature])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "fused"),
        ({"fused": True}, "fused"),
        ({"fused": False}, "single_tensor"),
        ({"foreach": True}, "foreach"),
        ({"foreach": False}, "fused"),
        ({"foreach": False, "fused": False}, "single_tensor"),
    ],
)
def test_foreach_and_fused_choose_the_path(kind, options, expected):
    weight = torch.nn.Parameter(torch.ones(2, 2))
    weight.grad = torch.ones(2, 2)
    optimizer = kind([weight], lr=0.1, **options)
    group = optimizer.param_groups[0]
    assert choose_implementation(group, optimizer._collect_layers(group)) == expected


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("name", ["lr", "weight_decay"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "fast"])
def test_a_bad_number_is_named(kind, name, value):
    with pytest.raises(ValueError, match=rf"^{name} should be .*{value}"):
        kind([torch.nn.Parameter(torch.ones(2))], **{"lr": 0.1, name: value})


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (LARS, {"momentum": 1.0}, "momentum should be less than 1, got 1.0"),
        (LARS, {"trust_coefficient": 0.0}, "trust_coefficient should be greater than 0, got 0.0"),
        (LARS, {"eps": -1e-8}, "eps should be .* got -1e-08"),
        (LARS, {"norm": "both"}, "norm should be .sum. or .joint., got .both."),
        (LARS, {"momentum_form": "beside"}, "momentum_form should be .inside. or .outside."),
        (LARS, {"nesterov": True, "momentum": 0.0}, "nesterov=True needs a momentum"),
        (LARS, {"nesterov": True, "fused": True}, "fused=True does not support nesterov=True"),
        (LARS, {"foreach": True, "fused": True}, "foreach=True and fused=True exclude each other"),
        (LARS, {"exclude": "one_dimensionl"}, "did you mean 'one_dimensional'"),
        (LARS, {"exclude": 3}, "exclude must be a name or a function, got 3"),
        (LAMB, {"betas": (0.9, 1.0)}, "betas should be less than 1, got 1.0"),
        (LAMB, {"betas": (0.9,)}, "betas .*got"),
        (LAMB, {"eps": 0.0}, "eps should be greater than 0"),
        (MedianCurvature, {"median": "mean"}, "median should be .absolute. or .signed., got .mean."),
        (Curvature, {"hessian": "guess"}, "hessian should be .estimate., .hutchinson. or .exact."),
        (Curvature, {"samples": 0}, "samples should be greater than 0, got 0"),
        (Curvature, {"max_radius": 0.0}, "max_radius should be greater than 0"),
    ],
)
def test_a_bad_argument_is_named(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind([torch.nn.Parameter(torch.ones(2))], **{"lr": 0.1, **options})


@pytest.mark.parametrize("kind", ALL)
def test_complex_parameters_are_refused(kind):
    with pytest.raises(ValueError, match="complex"):
        kind([torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))], lr=0.1)


def test_a_refused_group_leaves_the_optimizer_as_it_was():
    optimizer = LARS([torch.nn.Parameter(torch.ones(2, 2))], lr=0.1)
    with pytest.raises(ValueError, match="lr should be"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))], "lr": -1.0})
    assert len(optimizer.param_groups) == 1


def test_fused_needs_the_cpu():
    with pytest.raises(ValueError, match=r"fused=True needs .* on the CPU, but one is .* on meta"):
        LARS([torch.nn.Parameter(torch.ones(2, device="meta"))], lr=0.1, fused=True)
