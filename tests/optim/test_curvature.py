"""Curvature from second derivatives: exact and Hutchinson's, from a closure that returns the loss."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bigbatch.optim import Curvature
from bigbatch.optim.curvature import exact_diagonal, hutchinson_diagonals

MATRIX = torch.tensor([[4.0, 1.0], [1.0, -2.0]], dtype=torch.float64)


def quadratic(weight):
    """½wᵀHw: the gradient is Hw, the second derivatives are the diagonal of H."""
    return 0.5 * weight @ MATRIX @ weight


def parameter(*values):
    return nn.Parameter(torch.tensor(values, dtype=torch.float64))


def test_exact_step_by_hand():
    # w = [1, 1]: g = [5, -1], h = [4, -2]; R = (1 + g²)^1.5/|h| = [26^1.5/4, 2^1.5/2]: bounded by 3 and √2
    weight = parameter(1.0, 1.0)
    optimizer = Curvature([weight], lr=0.1, hessian="exact", max_radius=3.0, exclude="none")
    loss = optimizer.step(lambda: quadratic(weight))
    assert weight.tolist() == pytest.approx([1 - 0.1 * 3 * 5, 1 + 0.1 * 2**0.5])
    assert loss.item() == pytest.approx(2.0)
    assert weight.grad is None


def test_weight_decay_is_part_of_gradient_and_curvature():
    # β = 1 at w = [1, 1]: g = [6, 0], h = [5, -1]
    weight = parameter(1.0, 1.0)
    Curvature([weight], lr=0.1, weight_decay=1.0, hessian="exact", max_radius=1e9, exclude="none").step(
        lambda: quadratic(weight)
    )
    assert weight.tolist() == pytest.approx([1 - 0.1 * 6 * 37**1.5 / 5, 1.0])


def test_hutchinson_is_the_diagonal_in_the_mean_and_exact_where_h_is_diagonal():
    weight = parameter(1.0, 1.0)
    (gradient,) = torch.autograd.grad(quadratic(weight), weight, create_graph=True)
    assert torch.equal(exact_diagonal(weight, gradient), torch.tensor([4.0, -2.0], dtype=torch.float64))
    draws = torch.stack([hutchinson_diagonals([(weight, gradient)], key)[0] for key in range(400)])
    # z·Hz = h ± 1, the off-diagonal: standard error 1/√400
    torch.testing.assert_close(draws.mean(0), torch.tensor([4.0, -2.0], dtype=torch.float64), atol=0.2, rtol=0)
    assert set(draws[:, 0].tolist()) == {3.0, 5.0}
    (gradient,) = torch.autograd.grad((weight**3).sum(), weight, create_graph=True)
    assert hutchinson_diagonals([(weight, gradient)], 0)[0].tolist() == [6.0, 6.0]


def test_hutchinson_is_a_function_of_seed_and_step_that_leaves_other_randomness_alone():
    def train(steps, state=None, start=(1.0, 1.0)):
        weight = parameter(*start)
        optimizer = Curvature([weight], lr=0.1, hessian="hutchinson", exclude="none", max_radius=0.3)
        if state:
            optimizer.load_state_dict(state)
        for _ in range(steps):
            torch.rand(1)  # what a model's dropout might draw
            optimizer.step(lambda: quadratic(weight))
        return tuple(weight.tolist()), optimizer.state_dict()

    before = torch.get_rng_state()
    end, _ = train(6)
    torch.set_rng_state(before)
    torch.rand(6)
    drawn = torch.get_rng_state()
    torch.set_rng_state(before)
    train(6)
    assert torch.equal(torch.get_rng_state(), drawn)
    half, state = train(3)
    assert train(3, state, half)[0] == end


def test_flat_directions_and_linear_losses_take_radius_one():
    weight = parameter(1.0, 1.0)
    for hessian in ("exact", "hutchinson"):
        Curvature([weight], lr=0.1, hessian=hessian, exclude="none").step(lambda: (2 * weight).sum())
    assert weight.tolist() == pytest.approx([0.6, 0.6])


def test_excluded_tensors_take_the_plain_lr_and_unused_ones_stay():
    bias, unused = parameter(1.0, 1.0), parameter(1.0)
    Curvature([bias, unused], lr=0.1, hessian="exact").step(lambda: quadratic(bias))
    assert bias.tolist() == pytest.approx([0.5, 1.1])
    assert unused.tolist() == [1.0]


def test_momentum_carries_measured_steps_on():
    weight = parameter(1.0, 0.0)
    optimizer = Curvature([weight], lr=0.1, momentum=0.5, hessian="exact", exclude="none", max_radius=0.25)
    optimizer.step(lambda: quadratic(weight))  # g = [4, 1]: v = .1·[.25·4, .25·1]
    assert weight.tolist() == pytest.approx([0.9, -0.025])
    assert optimizer.state[weight]["momentum_buffer"].tolist() == pytest.approx([0.1, 0.025])


@pytest.mark.parametrize("hessian", ["exact", "hutchinson"])
def test_a_missing_or_spent_closure_is_explained(hessian):
    weight = parameter(1.0, 1.0)
    optimizer = Curvature([weight], lr=0.1, hessian=hessian, exclude="none")
    assert optimizer.needs_closure
    assert not Curvature([weight], lr=0.1).needs_closure
    with pytest.raises(ValueError, match="needs a closure"):
        optimizer.step()
    with pytest.raises(ValueError, match="do not call backward"):
        optimizer.step(lambda: quadratic(weight).detach())
    with pytest.raises(ValueError, match="no parameter that the loss depends on"):
        optimizer.step(lambda: parameter(1.0).sum())
    assert weight.tolist() == [1.0, 1.0]


def test_estimate_leaves_no_weight_stuck_at_zero():
    weight = parameter(0.0, 2.0)
    weight.grad = torch.tensor([0.5, 0.5], dtype=torch.float64)
    Curvature([weight], lr=0.1, exclude="none").step()
    assert weight.tolist() == pytest.approx([-0.05, 1.8])
