"""Losses whose gradients, Hessians and noise are known on paper."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# rows add up to Hessian A = [[4, 1, 0], [1, 3, 1], [0, 1, 2]] and linear part b
A = torch.tensor([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]], dtype=torch.float64)
B = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
W = torch.tensor([0.3, -1.2, 0.7], dtype=torch.float64)


class Weights(nn.Module):
    """Its output is its weights, whatever the input."""

    def __init__(self, start: Tensor = W) -> None:
        super().__init__()
        self.first = nn.Parameter(start[:2].clone())
        self.second = nn.Parameter(start[2:].clone())

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.first, self.second])


def quadratic(w: Tensor, targets: Tensor) -> Tensor:
    """½wᵀAw + bᵀw."""
    return 0.5 * w @ A @ w + B @ w


def indefinite(w: Tensor, targets: Tensor) -> Tensor:
    """½(2w₀² − 5w₁² + w₂²): curves downwards along w₁."""
    return 0.5 * (w * torch.tensor([2.0, -5.0, 1.0], dtype=torch.float64)) @ w


NOTHING = (torch.zeros(1), torch.zeros(1))


DELTA = torch.tensor([0.6, -0.3, 0.0, 0.2, 0.5, -0.4], dtype=torch.float64)  # |δ|² = 0.9


def regression(
    seed: int, samples: int = 3000, delta: Tensor = DELTA, noise: float = 2.0
) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """y = w*·x + noise, x standard normal, at w = w* + δ. For the loss ½(w·x − y)² the gradient of a sample is
    (δ·x − e)x: G = δ, and Σ = (|δ|² + s²)·1 + δδᵀ. With the defaults φ = (6 · 4.9 + 0.9) / 0.9 = 33.7."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, len(delta), generator=generator, dtype=torch.float64)
    truth = torch.randn(len(delta), generator=generator, dtype=torch.float64)
    y = x @ truth + noise * torch.randn(samples, generator=generator, dtype=torch.float64)
    model = nn.Linear(len(delta), 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(truth + delta)
    return model, (x, y)


def half_square(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * (outputs.squeeze(-1) - targets).square()
