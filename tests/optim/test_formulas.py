"""Every optimizer against hand-computed numbers and against a float64 oracle, by every path."""

from __future__ import annotations

import numpy as np
import optim_oracles as oracle
import pytest
import torch

from bigbatch.optim import LAMB, LARS, Curvature, MedianCurvature, PercentDelta

PATHS = {"fused": {"fused": True}, "foreach": {"foreach": True}, "plain": {"foreach": False, "fused": False}}
STEPS = 4
# two alike (moved as rows of a matrix), one alone, one large, one excluded
SHAPES = [(4, 3), (4, 3), (2, 3, 2), (120, 90), (5,)]


def one_step(kind, w, g, **options):
    weight = torch.nn.Parameter(torch.tensor(w, dtype=torch.float64))
    weight.grad = torch.tensor(g, dtype=torch.float64)
    kind([weight], **{"exclude": "none", **options}).step()
    return weight.tolist()


def run(kind, **options):
    """Final weights of each tensor, its start and the gradients it saw."""
    rng = np.random.default_rng(0)
    starts = [rng.normal(size=shape) * 0.3 for shape in SHAPES]
    gradients = [[rng.normal(size=shape) for shape in SHAPES] for _ in range(STEPS)]
    weights = [torch.nn.Parameter(torch.tensor(start)) for start in starts]
    optimizer = kind(weights, **options)
    for at_step in gradients:
        for weight, gradient in zip(weights, at_step, strict=True):
            weight.grad = torch.tensor(gradient)
        optimizer.step()
    seen = [[at_step[index] for at_step in gradients] for index in range(len(SHAPES))]
    return [(weight.detach().numpy(), start, g) for weight, start, g in zip(weights, starts, seen, strict=True)]


def agree(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def check_momentum_family(kind, ratio, options, **variant):
    common = {"lr": 0.3, "momentum": 0.8, "weight_decay": 0.1}
    for found, start, gradients in run(kind, **common, **options):
        rule = (lambda w, g: 1.0) if start.ndim == 1 else ratio
        agree(found, oracle.momentum_steps(rule, start, gradients, **common, **variant))


def test_lars_first_step_follows_the_paper():
    # ‖w‖=5, ‖g‖=1: λ = 0.4·5/(1 + 0.2·5) = 1. The joint norm would give 1.41.
    step = {"w": [3.0, 4.0], "g": [0.8, -0.6], "lr": 0.5, "trust_coefficient": 0.4, "weight_decay": 0.2}
    assert one_step(LARS, **step) == pytest.approx([2.3, 3.9])
    # g + βw = [1.4, 0.2], its norm √2: λ = 2/√2
    assert one_step(LARS, **step, norm="joint") == pytest.approx([3 - 0.7 * 2**0.5, 4 - 0.1 * 2**0.5])


def test_lars_keeps_the_lr_inside_momentum():
    # w=10, g=1, trust .1: λ = .1·w. lr 1 then 0: inside, the second step still coasts by .5·1; outside it stops.
    def end(form):
        weight = torch.nn.Parameter(torch.tensor([10.0], dtype=torch.float64))
        optimizer = LARS([weight], 1.0, 0.5, trust_coefficient=0.1, exclude="none", momentum_form=form)
        for lr in (1.0, 0.0):
            weight.grad = torch.ones_like(weight)
            optimizer.param_groups[0]["lr"] = lr
            optimizer.step()
        return weight.item()

    assert end("inside") == pytest.approx(10 - 1 - 0.5)
    assert end("outside") == pytest.approx(10 - 1)


def test_percent_delta_first_step():
    # |g/w| = [1/2, 1]: λ = 0.3·2/1.5 = 0.4
    step = {"w": [2.0, -4.0], "g": [1.0, 4.0], "lr": 0.5, "trust_coefficient": 0.3, "eps": 0.0}
    assert one_step(PercentDelta, **step) == pytest.approx([2 - 0.2, -4 - 0.8])


def test_median_curvature_first_step():
    # med|w| = 2, med|g| = 1, β = .5: R = 2/(1 + 1) = 1. Signed medians are -1 and 1: R = |-1/(1 - .5)| = 2.
    step = {"w": [-1.0, 2.0, -4.0], "g": [1.0, -1.0, 8.0], "lr": 0.5, "trust_coefficient": 1.0, "weight_decay": 0.5}
    assert one_step(MedianCurvature, **step) == pytest.approx([-1 - 0.25, 2 - 0.0, -4 - 3.0])
    assert one_step(MedianCurvature, **step, median="signed") == pytest.approx([-1 - 0.5, 2 - 0.0, -4 - 6.0])


def test_curvature_estimate_moves_by_a_share_of_each_weight():
    # R·g = |w/g|·g: lr·|w| against the gradient's sign, however large the gradient
    assert one_step(Curvature, [2.0, -4.0], [100.0, 0.001], lr=0.1) == pytest.approx([1.8, -4.4])


def test_lamb_first_step():
    # Bias-corrected, the first direction is sign(g): ‖w‖/‖u‖ = 5/√2
    expected = [3 - 0.1 * 5 / 2**0.5, 4 + 0.1 * 5 / 2**0.5]
    assert one_step(LAMB, [3.0, 4.0], [0.8, -0.6], lr=0.1) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
def test_lars_follows_its_oracle(path, joint, outside, maximize):
    options = {
        "norm": "joint" if joint else "sum",
        "momentum_form": "outside" if outside else "inside",
        "trust_coefficient": 0.2,
        "eps": 0.05,
        "maximize": maximize,
        **PATHS[path],
    }
    ratio = oracle.lars_ratio(0.2, 0.1, 0.05, joint)
    check_momentum_family(LARS, ratio, options, outside=outside, maximize=maximize)


@pytest.mark.parametrize("path", ["foreach", "plain"])
@pytest.mark.parametrize("outside", [False, True])
def test_lars_with_nesterov_follows_its_oracle(path, outside):
    form = "outside" if outside else "inside"
    options = {"nesterov": True, "momentum_form": form, "trust_coefficient": 0.2, **PATHS[path]}
    check_momentum_family(LARS, oracle.lars_ratio(0.2, 0.1), options, outside=outside, nesterov=True)


@pytest.mark.parametrize("path", PATHS)
def test_lars_without_momentum_follows_its_oracle(path):
    common = {"lr": 0.3, "momentum": 0.0, "weight_decay": 0.1}
    for found, start, gradients in run(LARS, **common, trust_coefficient=0.2, exclude="none", **PATHS[path]):
        agree(found, oracle.momentum_steps(oracle.lars_ratio(0.2, 0.1), start, gradients, **common))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("maximize", [False, True])
def test_percent_delta_follows_its_oracle(path, maximize):
    options = {"trust_coefficient": 0.2, "eps": 0.01, "maximize": maximize, **PATHS[path]}
    check_momentum_family(PercentDelta, oracle.percent_delta_ratio(0.2, 0.1, 0.01), options, maximize=maximize)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("signed", "maximize"), [(False, False), (False, True), (True, False)])
def test_median_curvature_follows_its_oracle(path, signed, maximize):
    median = "signed" if signed else "absolute"
    options = {"median": median, "trust_coefficient": 0.02, "eps": 0.05, "maximize": maximize, **PATHS[path]}
    check_momentum_family(MedianCurvature, oracle.median_ratio(0.02, 0.1, 0.05, signed), options, maximize=maximize)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize("maximize", [False, True])
def test_curvature_estimate_follows_its_oracle(momentum, maximize):
    common = {"lr": 0.05, "momentum": momentum, "weight_decay": 0.1}
    for found, start, gradients in run(Curvature, **common, maximize=maximize):
        rule = (lambda w, g: 1.0) if start.ndim == 1 else (lambda w, g: abs(w / (g + 0.1 * w)))
        agree(found, oracle.momentum_steps(rule, start, gradients, **common, maximize=maximize))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
def test_lamb_follows_its_oracle(path, bias_correction, clip, maximize):
    common = {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1, "maximize": maximize}
    common["bias_correction"] = bias_correction
    for found, start, gradients in run(LAMB, **common, trust_clip=clip, **PATHS[path]):
        agree(found, oracle.lamb_steps(start, gradients, **common, clip=clip, excluded=start.ndim == 1))


def test_signed_median_turns_with_the_gradient():
    # Maximising turns g: g_m = -1 then, R = |-1/(-1 - .5)| = 2/3, and the step goes up the gradient.
    step = {"w": [-1.0, 2.0, -4.0], "g": [1.0, -1.0, 8.0], "lr": 0.5, "trust_coefficient": 1.0, "weight_decay": 0.5}
    found = one_step(MedianCurvature, **step, median="signed", maximize=True)
    assert found == pytest.approx([-1 + 0.5, 2 - 2 / 3, -4 + 10 / 3])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("lr", [1e-17, 1e-14, 1e-12, 1e-8])
def test_small_learning_rates_keep_their_digits(path, maximize, lr):
    # 1 − (1 − 1e-14) is 9.992e-15, and 1 − (1 − 1e-17) is 0
    weight = torch.nn.Parameter(torch.tensor([0.0, 1e-12], dtype=torch.float64))
    weight.grad = torch.tensor([3.0, -2.0], dtype=torch.float64)
    options = {"momentum": 0.9, "weight_decay": 0.5, "exclude": "all", "maximize": maximize, **PATHS[path]}
    optimizer = LARS([weight], lr=lr, **options)
    optimizer.step()
    sign = -1 if maximize else 1
    expected = [lr * sign * 3, lr * (sign * -2 + 0.5e-12)]
    assert optimizer.state[weight]["momentum_buffer"].tolist() == pytest.approx(expected, rel=1e-7, abs=0)
    assert weight.tolist() == pytest.approx([-expected[0], 1e-12 - expected[1]], rel=1e-7, abs=0)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("median", ["absolute", "signed"])
def test_maximising_a_median_equals_minimising_the_other_sign(path, median):
    # of an even number the lower median of g is 2, that of −g is −4: turning g_m around would give −2
    def end(g, **options):
        step = {"w": [1.0, -2.0, 3.0, -5.0], "lr": 0.5, "trust_coefficient": 1.0, "weight_decay": 0.1}
        return one_step(MedianCurvature, g=g, median=median, **step, **options, **PATHS[path])

    assert end([1.0, 2.0, 4.0, 8.0], maximize=True) == pytest.approx(end([-1.0, -2.0, -4.0, -8.0]), rel=1e-12)


def test_signed_medians_jump_where_absolute_ones_are_steady():
    """Why `median="absolute"` is the default: the same kind of layer, fresh noise each time."""
    rng = np.random.default_rng(0)
    layers = [(rng.normal(size=(50, 51)), rng.normal(size=(50, 51))) for _ in range(100)]

    def ratios(median):
        options = {"lr": 1.0, "momentum": 0.0, "trust_coefficient": 1.0, "median": median}
        return [(w[0, 0] - one_step(MedianCurvature, w, g, **options)[0][0]) / g[0, 0] for w, g in layers]

    signed, absolute = ratios("signed"), ratios("absolute")
    assert np.log10(np.quantile(signed, 0.95) / np.quantile(signed, 0.05)) > 1.5  # decades
    assert np.log10(max(absolute) / min(absolute)) < 0.1
