"""A regression whose noise scale is known on paper, and how to ask about it while its weights stand still."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bigbatch.advice.learner import ModuleLearner
from bigbatch.advice.measure import Measured, measured
from bigbatch.advice.times import StepTimes

DELTA = torch.tensor([0.6, -0.3, 0.0, 0.2, 0.5, -0.4], dtype=torch.float64)  # |δ|² = 0.9
# (w·x − y)²/2 at w = w* + δ, x standard normal, y = w*·x + noise of deviation 2: G = δ, trΣ = 6(|δ|² + 4) + |δ|²
NOISE_SCALE = (6 * 4.9 + 0.9) / 0.9
STANDSTILL = {"optimizer": "sgd", "lr": 1e-12}
SIZES = (16, 32, 64, 128, 256)


def regression(seed: int, samples: int = 3000, delta: Tensor = DELTA) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, len(delta), generator=generator, dtype=torch.float64)
    truth = torch.randn(len(delta), generator=generator, dtype=torch.float64)
    y = x @ truth + 2.0 * torch.randn(samples, generator=generator, dtype=torch.float64)
    model = nn.Linear(len(delta), 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(truth + delta)
    return model, (x, y)


def half_square(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * (outputs.squeeze(-1) - targets).square()


def learner_of(model: nn.Module, data: Any, loss: Any = half_square, **changed: Any) -> ModuleLearner:
    about = {**STANDSTILL, "batch": 64, "warmup_epochs": 0.0, "epochs": None, "seed": 0}
    return ModuleLearner(model, loss, data, **(about | changed))


def found_of(learner: ModuleLearner, fixed_seconds: float, seconds_per_sample: float) -> Measured:
    """What is measured, but with step times that are known."""
    found = measured(learner, seconds=2.0, steps=2, batches=[8, 16, 32], say=lambda text: None)
    exact = fixed_seconds + seconds_per_sample * np.asarray(SIZES, float)
    found.times = StepTimes(SIZES, np.stack([exact] * 3))
    return found
