"""Scaling rules: what k times the batch does to the rate (Krizhevsky 2014)."""

from __future__ import annotations

from math import sqrt
from typing import Literal

Scaling = Literal["linear", "sqrt", "none"]


def scaled(rate: float, k: float, scaling: Scaling) -> float:
    """The rate for k times the batch, k below 1 included.

    `linear` keeps the expected step for each sample, `sqrt` the variance of the step, `none` takes the rate as tuned.
    """
    match scaling:
        case "linear":
            return rate * k
        case "sqrt":
            return rate * sqrt(k)
        case "none":
            return rate
