"""Random numbers that are pure functions of a key, without a generator whose state has to be saved.

SplitMix64 (Steele, Lea, Flood 2014) as a hash: the same key gives the same number on every machine, rank, worker
and library version, so an order or a crop can be recomputed anywhere.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

# The first number of a key separates random streams: an order never shares numbers with a crop (datasets: below 100).
ORDER, INITIAL_WEIGHTS, DROPOUT, PRUNING, GRADIENT_NOISE = 101, 102, 103, 104, 105

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def bits(*key: int | NDArray[np.integer]) -> NDArray[np.uint64]:
    """Return 64 random bits for each element of the broadcast key."""
    with np.errstate(over="ignore"):
        state = np.zeros(1, np.uint64)
        for part in key:
            state = _splitmix64(state * _GOLDEN + np.asarray(part).astype(np.uint64) + _GOLDEN)
        return state


def _splitmix64(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def integers(below: int, *key: int | NDArray[np.integer]) -> NDArray[np.int64]:
    """Return uniform integers in [0, below); the bias of the remainder is under below / 2^64."""
    return (bits(*key) % np.uint64(below)).astype(np.int64)


def uniform(*key: int | NDArray[np.integer]) -> NDArray[np.float64]:
    """Return uniform floats in [0, 1) with 53 random bits."""
    return (bits(*key) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(count: int, *key: int) -> torch.Tensor:
    """Return a random permutation of 0..count-1: the elements sorted by their random numbers."""
    return torch.from_numpy(np.argsort(bits(*key, np.arange(count)), kind="stable"))


def seed_torch(*key: int) -> None:
    """Seed torch's own generators (dropout, initialization) with a key.

    `torch.manual_seed` seeds every kind of device and takes 30 times as long, too long for each micro-batch.
    """
    seed = _scalar_bits(*key) >> 1
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(seed)


def _scalar_bits(*key: int) -> int:
    """Return `bits` of a single key in Python integers, because arrays of one element are slow."""
    golden, mask, state = int(_GOLDEN), 2**64 - 1, 0
    for part in key:
        state = (state * golden + part + golden) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return state
