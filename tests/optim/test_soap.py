"""SOAP by hand and against a float64 oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from bigbatch.optim import SOAP

STEPS = 6


def train(start, gradients, **options):
    weight = nn.Parameter(torch.tensor(start, dtype=torch.float64))
    optimizer = SOAP([weight], **options)
    for gradient in gradients:
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
    return weight.detach().numpy()


def along(matrix, tensor, dim):
    """The matrix times one dimension of a tensor."""
    return np.moveaxis(np.tensordot(matrix, tensor, axes=(1, dim)), 0, dim)


def oracle(w, gradients, *, lr, betas, eps, weight_decay, shampoo_beta, frequency, dims):
    """Algorithm 3 with the first gradient for the basis only; `dims` are the preconditioned dimensions."""
    m, v, steps = np.zeros_like(w), np.zeros_like(w), 0
    factors = {dim: np.zeros((w.shape[dim],) * 2) for dim in dims}
    bases = {}
    for number, g in enumerate(gradients):
        if number or not dims:
            steps += 1
            m = betas[0] * m + (1 - betas[0]) * g
            rotated_g, rotated_m = g, m
            for dim in dims:
                rotated_g, rotated_m = along(bases[dim].T, rotated_g, dim), along(bases[dim].T, rotated_m, dim)
            v = betas[1] * v + (1 - betas[1]) * rotated_g**2
            step = rotated_m / (1 - betas[0] ** steps) / (np.sqrt(v / (1 - betas[1] ** steps)) + eps)
            for dim in dims:
                step = along(bases[dim], step, dim)
            w = (1 - lr * weight_decay) * w - lr * step
        for dim in dims:
            rows = np.moveaxis(g, dim, 0).reshape(g.shape[dim], -1)
            factors[dim] = shampoo_beta * factors[dim] + (1 - shampoo_beta) * rows @ rows.T
            if not number:
                bases[dim] = np.linalg.eigh(factors[dim])[1][:, ::-1]
            elif steps % frequency == 0:
                product = factors[dim] @ bases[dim]
                order = np.argsort(-np.einsum("ij,ij->j", bases[dim], product))
                bases[dim] = np.linalg.qr(product[:, order])[0]
                v = np.take(v, order, axis=dim)
    return w


def test_first_steps_by_hand():
    # [[2, 1], [1, 2]] has the eigenvectors (1, 1)/√2 and (1, −1)/√2. There [[1, 0], [0, 0]] is ½ everywhere, Adam's
    # first step 1 everywhere, and back that is [[2, 0], [0, 0]]. Adam itself would step by [[1, 0], [0, 0]].
    start, first, second = [[5.0, 5.0], [5.0, 5.0]], [[2.0, 1.0], [1.0, 2.0]], [[1.0, 0.0], [0.0, 0.0]]
    options = {"lr": 0.1, "weight_decay": 0.2, "eps": 1e-300}
    np.testing.assert_array_equal(train(start, [first], **options), start)
    decayed = 5 * (1 - 0.1 * 0.2)
    expected = [[decayed - 0.2, decayed], [decayed, decayed]]
    np.testing.assert_allclose(train(start, [first, second], **options), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("shape", "dims"), [((4, 4), (0, 1)), ((3, 4, 5), (0, 1, 2)), ((7, 5), (1,)), ((1, 5), ()), ((6,), ())]
)
@pytest.mark.parametrize("shampoo_beta", [None, 0.8])
def test_follows_its_oracle(shape, dims, shampoo_beta):
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=shape), [rng.normal(size=shape) for _ in range(STEPS)]
    options = {"lr": 0.1, "betas": (0.7, 0.9), "eps": 1e-3, "weight_decay": 0.1}
    largest = 5 if dims else 3  # 7 rows are not preconditioned
    found = train(
        start, gradients, **options, shampoo_beta=shampoo_beta, precondition_frequency=2, max_precond_dim=largest
    )
    expected = oracle(start, gradients, **options, shampoo_beta=shampoo_beta or 0.9, frequency=2, dims=dims)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_vectors_take_adamws_steps():
    start, gradients = [3.0, -2.0], [[1.0, 4.0], [-2.0, 3.0]]
    weight = nn.Parameter(torch.tensor(start, dtype=torch.float64))
    adamw = torch.optim.AdamW([weight], lr=0.1, betas=(0.95, 0.95), weight_decay=0.2)
    for gradient in gradients:
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        adamw.step()
    np.testing.assert_allclose(train(start, gradients, lr=0.1, weight_decay=0.2), weight.detach().numpy(), rtol=1e-12)


def test_the_update_turns_with_the_problem():
    # rotated gradients give rotated steps, which Adam's are not
    rng = np.random.default_rng(1)
    start, gradients = rng.normal(size=(4, 4)), [rng.normal(size=(4, 4)) for _ in range(4)]
    turn, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    turned = train(turn @ start, [turn @ gradient for gradient in gradients], lr=0.1)
    np.testing.assert_allclose(turned, turn @ train(start, gradients, lr=0.1), rtol=1e-9, atol=1e-9)


def test_half_precision_is_refused():
    with pytest.raises(ValueError, match=r"SOAP needs float32 or float64 parameters, got torch.bfloat16"):
        SOAP([nn.Parameter(torch.zeros(2, 2, dtype=torch.bfloat16))])
