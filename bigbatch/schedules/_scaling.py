"""Scaling rules: what k times the batch does to the learning rate (Krizhevsky 2014)."""

from __future__ import annotations

from math import sqrt
from typing import Literal

Scaling = Literal["linear", "sqrt", "none"]


def scaled(lr: float, k: float, scaling: Scaling) -> float:
    """The learning rate for k times the batch, k below 1 included.

    `linear` keeps the expected step for each sample, `sqrt` the variance of the step, `none` takes the lr as tuned.
    """
    match scaling:
        case "linear":
            return lr * k
        case "sqrt":
            return lr * sqrt(k)
        case "none":
            return lr
