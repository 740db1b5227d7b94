"""Random numbers that are pure functions of their key: no generator state to save, none to lose.

SplitMix64 (Steele, Lea, Flood 2014) as a hash: the same key gives the same number on every machine, rank, worker
and library version, so an order or a crop can be recomputed anywhere instead of being carried along.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

# The part of a key that keeps uses apart, so that an order never shares its numbers with a crop (datasets: below 100).
ORDER, INITIAL_WEIGHTS, DROPOUT = 101, 102, 103

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def bits(*key: int | NDArray[np.integer]) -> NDArray[np.uint64]:
    """64 random bits for each element of the broadcast key."""
    with np.errstate(over="ignore"):
        state = np.zeros(1, np.uint64)
        for part in key:
            state = _mix(state * _GOLDEN + np.asarray(part).astype(np.uint64) + _GOLDEN)
        return state


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def integers(below: int, *key: int | NDArray[np.integer]) -> NDArray[np.int64]:
    """Uniform integers in [0, below); the bias of the remainder is under below / 2^64."""
    return (bits(*key) % np.uint64(below)).astype(np.int64)


def uniform(*key: int | NDArray[np.integer]) -> NDArray[np.float64]:
    """Uniform floats in [0, 1) with 53 random bits."""
    return (bits(*key) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(count: int, *key: int) -> torch.Tensor:
    """A shuffle of 0..count-1: sorted by each element's own random number."""
    return torch.from_numpy(np.argsort(bits(*key, np.arange(count)), kind="stable"))


def seed_torch(*key: int) -> None:
    """Make what follows from torch's own generators (dropout, initialisation) a function of the key.

    `torch.manual_seed` does the same for every kind of device at 30 times the cost, too much for each micro-batch.
    """
    seed = _scalar_bits(*key) >> 1
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(seed)


def _scalar_bits(*key: int) -> int:
    """`bits` for a single key, in Python's own integers: arrays of one element are slow."""
    golden, mask, state = int(_GOLDEN), 2**64 - 1, 0
    for part in key:
        state = (state * golden + part + golden) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return state
