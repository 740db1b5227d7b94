"""A quadratic whose Hessian is known: every number that describes curvature, to 1e-6 and better."""

from __future__ import annotations

import pytest
import torch
from analytic import NOTHING, A, B, W, Weights, indefinite, quadratic

from bigbatch.probes import curvature, landscape, lipschitz, ratio, sharpness
from bigbatch.probes.measurement.objective import Hessian, Objective, flatten, unflatten

G = A @ W + B


def test_hessian_times_vector():
    hessian = Hessian(Objective(Weights(), quadratic, *NOTHING))
    vector = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    assert flatten(hessian.gradient).tolist() == pytest.approx(G.tolist(), rel=1e-12)
    # (4−2, 1−6+3, −2+6)
    assert flatten(hessian.multiply(unflatten(vector, hessian.parameters))).tolist() == pytest.approx([2.0, -2.0, 4.0])


def test_lipschitz_is_the_quotient_with_its_sign():
    found = lipschitz(Weights(), quadratic, *NOTHING)
    expected = float(G @ A @ G / (G @ G))
    assert found["exact"] == pytest.approx(expected, rel=1e-10)
    assert found["finite"] == pytest.approx(expected, rel=1e-6)
    assert found["radius"] == pytest.approx(1e-3 * float(W.norm()))
    assert found["gradient_norm"] == pytest.approx(float(G.norm()))
    # at w = (0, 1, 0) the gradient points along w₁, where the curvature is −5; the paper's norm would say +5
    down = lipschitz(Weights(torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)), indefinite, *NOTHING)
    assert down["exact"] == pytest.approx(-5.0)
    assert down["finite"] == pytest.approx(-5.0, rel=1e-6)


def test_eigenvalues_and_trace():
    found = sharpness(Weights(), quadratic, *NOTHING, tolerance=1e-9)
    assert found["eigenvalues"] == pytest.approx(sorted(torch.linalg.eigvalsh(A).tolist(), reverse=True), rel=1e-9)
    assert found["smallest"] == pytest.approx(float(torch.linalg.eigvalsh(A)[0]), rel=1e-9)
    assert (found["trace"], found["trace_error"]) == (pytest.approx(9.0, rel=1e-9), 0.0)
    assert found["converged"]
    # L(w + ρg/‖g‖) − L(w) = ρ‖g‖ + ½ρ²·gᵀAg/‖g‖²
    rise = 0.05 * float(G.norm()) + 0.5 * 0.05**2 * float(G @ A @ G / (G @ G))
    assert found["sam"] == pytest.approx(rise, rel=1e-9)


def test_a_large_spectrum_is_found_at_its_top_and_the_trace_within_its_error():
    values = torch.cat([torch.tensor([50.0, 20.0, 10.0]), torch.linspace(-1, 1, 197)]).double()
    turn, _ = torch.linalg.qr(torch.randn(200, 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    matrix = turn @ torch.diag(values) @ turn.T
    model = torch.nn.Linear(200, 1, bias=False, dtype=torch.float64)

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        w = model.weight[0] + 0 * outputs.sum()
        return 0.5 * w @ matrix @ w

    found = sharpness(model, loss, torch.zeros(1, 200, dtype=torch.float64), torch.zeros(1), tolerance=1e-8)
    assert found["eigenvalues"] == pytest.approx([50.0, 20.0, 10.0], rel=1e-6)
    assert found["products"] < 40
    # 80 lies in Lanczos' subspace; plain Hutchinson with 8 products would be off by about √(2·3000/8) = 27
    assert found["trace"] == pytest.approx(80.0, abs=4 * found["trace_error"])
    assert found["trace_error"] < 6


def test_radius_of_curvature_beside_the_papers_estimate():
    found = curvature(Weights(), quadratic, *NOTHING)
    radii = [(1 + float(g) ** 2) ** 1.5 / h for g, h in zip(G, (4.0, 3.0, 2.0), strict=True)]
    first, second = found["layers"]["first"], found["layers"]["second"]
    assert first["radius"] == pytest.approx((radii[0] + radii[1]) / 2, rel=1e-9)
    assert second["radius"] == pytest.approx(radii[2], rel=1e-9)
    assert second["trust_ratio"] == pytest.approx(float((W[2] / G[2]).abs()))
    assert second["off_by"] == pytest.approx(second["trust_ratio"] / second["radius"])
    assert found["weight"]["radius"] == pytest.approx((first["radius"] + second["radius"]) / 2)
    assert "bias" not in found


def test_negative_curvature_is_counted_and_a_flat_direction_has_no_radius():
    found = curvature(Weights(), indefinite, *NOTHING)["layers"]
    assert found["first"]["negative"] == 0.5
    flat_loss = curvature(Weights(), lambda w, _: w @ B, *NOTHING)["layers"]
    assert flat_loss["second"]["radius"] is None
    assert flat_loss["second"]["off_by"] is None


def test_weights_and_biases_are_told_apart():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LSTM(4, 2, batch_first=True)).double()
    found = curvature(model, lambda out, y: out[0].square().mean(), torch.ones(2, 5, 3).double(), torch.zeros(2))
    kinds = {name: layer["kind"] for name, layer in found["layers"].items()}
    assert kinds["0.bias"] == kinds["1.bias_ih_l0"] == "bias"
    assert kinds["0.weight"] == kinds["1.weight_hh_l0"] == "weight"
    assert found["bias"]["radius"] > 0


def test_landscape_of_a_parabola_along_filter_normalised_directions():
    model = torch.nn.Linear(2, 2).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[3.0, 4.0], [0.0, 2.0]]))
    seen = []

    def loss(outputs, targets):
        seen.append(model.weight.detach().clone())
        return 0.5 * model.weight.square().sum() + 0 * outputs.sum() + model.bias.sum().square()

    found = landscape(model, loss, torch.zeros(1, 2).double(), torch.zeros(1), points=3, radius=0.5)
    assert found["at"] == [-0.5, 0.0, 0.5]
    moved = seen[2] - seen[1]
    # half of each filter's own length, 5 and 2
    assert moved.norm(dim=1).tolist() == pytest.approx([2.5, 1.0])
    # a parabola's second difference along d is ‖d‖²
    low, middle, high = found["losses"]
    assert low - 2 * middle + high == pytest.approx(float(moved.square().sum()))
    plane = landscape(model, loss, torch.zeros(1, 2).double(), torch.zeros(1), points=3, radius=0.5, dimensions=2)
    assert [row[1] for row in plane["losses"]] == pytest.approx(found["losses"])  # the first direction is the same


def test_ratio_from_a_loss_and_from_gradients():
    model = Weights()
    found = ratio(model, quadratic, *NOTHING)
    assert model.first.grad is None
    assert found["second"]["weight"] == pytest.approx(0.7)
    assert found["second"]["gradient"] == pytest.approx(abs(float(G[2])))
    assert found["second"]["ratio"] == pytest.approx(0.7 / abs(float(G[2])))
    quadratic(model(None), None).backward()
    assert ratio(model) == found


def test_attention_can_be_differentiated_twice():
    """The fused kernels of attention have no second derivative: the plain one is used instead."""

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inward = torch.nn.Linear(8, 24)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.inward(x).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    torch.manual_seed(0)
    model = Attention().double()
    found = lipschitz(model, lambda out, y: out.square().mean(), torch.randn(2, 5, 8).double(), torch.zeros(2))
    assert found["exact"] == pytest.approx(found["finite"], rel=1e-4)
