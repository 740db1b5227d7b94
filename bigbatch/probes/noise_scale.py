"""The gradient noise scale trΣ/|G|² from micro-batch gradients (McCandlish et al. 2018): the batch worth using."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field

from bigbatch import probes
from bigbatch.errors import Problem

NEEDS_MICRO_GRADIENTS = True


class Config(probes.Config):
    every_steps: int = Field(10, gt=0)
    smoothing: float = Field(0.9, ge=0, lt=1)  # of the two parts, never of their ratio, whose mean means nothing


def measure(state: probes.State, config: Config) -> dict[str, Any]:
    """`noise` trΣ and `signal` |G|², their moving averages, and `whole`, the quotient of these.

    `whole` is None while the signal's average is not positive: the batch is then too small to tell it from noise.
    """
    micro = state.gradient.micro_gradients
    assert micro is not None
    own = [sum(micro.squared_norms), sum(1 / count for count in micro.counts), len(micro.counts), sum(micro.counts)]
    totals = torch.tensor(own, dtype=torch.float64, device=state.engine.device)
    squares, inverses, pieces, batch = state.engine.sum(totals).tolist()
    if pieces < 2:
        raise Problem(
            f"probe 'noise_scale' compares micro-batches, but a batch of {batch:.0f} is one of them here: "
            f"use --set micro_batch={max(1, int(batch) // 4)} or less"
        )
    gradients = [p.grad for p in state.model.parameters() if p.grad is not None]
    whole_square = float(torch.stack(torch._foreach_norm(gradients, dtype=torch.float64)).square().sum())
    noise, signal = parts_of(squares / pieces, inverses / pieces, whole_square, 1 / batch)

    earlier = next((row["noise_scale"] for row in reversed(state.history) if "noise_scale" in row), None)
    if earlier is None:
        noise_average, signal_average = noise, signal
    else:
        noise_average = config.smoothing * earlier["noise_average"] + (1 - config.smoothing) * noise
        signal_average = config.smoothing * earlier["signal_average"] + (1 - config.smoothing) * signal
    return {
        "whole": noise_average / signal_average if signal_average > 0 else None,
        "noise": noise,
        "signal": signal,
        "noise_average": noise_average,
        "signal_average": signal_average,
    }


def parts_of(
    small_square: float, small_inverse: float, large_square: float, large_inverse: float
) -> tuple[float, float]:
    """trΣ and |G|² from E|g|² = |G|² + trΣ/n at two sizes n, given as 1/n (McCandlish et al. 2018, appendix A.1)."""
    noise = (small_square - large_square) / (small_inverse - large_inverse)
    return noise, large_square - noise * large_inverse
