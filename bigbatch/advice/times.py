"""How long a step takes at several batches: the least of interleaved repetitions, and a line through them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigbatch import rng
from bigbatch.errors import Problem

Floats = NDArray[np.float64]
SIZES = 5
_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 40
_DRAWS = 1000
_KEY = 701  # keeps these random numbers apart from others (see rng.py)


@dataclass(frozen=True)
class StepTimes:
    batches: tuple[int, ...]
    rounds: Floats  # [rounds, batches], seconds

    @property
    def least(self) -> Floats:
        """Other processes only ever add time."""
        return self.rounds.min(axis=0)

    @property
    def line(self) -> tuple[float, float]:
        """a and b of t(B) = a + b·B."""
        return fitted(np.asarray(self.batches, float), self.least)

    @property
    def misfit(self) -> float:
        """The largest relative distance of a time from the line."""
        fixed, per_sample = self.line
        return float(np.abs((fixed + per_sample * np.asarray(self.batches)) / self.least - 1).max())

    @property
    def spread(self) -> float:
        """How much longer than the least a step takes at the median: how busy the machine is."""
        return float(np.median(self.rounds / self.least) - 1)

    def drawn_lines(self) -> tuple[Floats, Floats]:
        """a and b with repetitions and batches resampled: what noise, and a line that does not fit, make of them."""
        sizes = np.asarray(self.batches, float)
        rounds, places = self.rounds.shape
        chosen_rounds = rng.integers(rounds, 1, _KEY, np.arange(_DRAWS * rounds)).reshape(_DRAWS, rounds)
        chosen_places = rng.integers(places, 2, _KEY, np.arange(_DRAWS * places)).reshape(_DRAWS, places)
        lines = []
        for some_rounds, some_places in zip(chosen_rounds, chosen_places, strict=True):
            if len(np.unique(some_places)) < 3:
                some_places = np.arange(places)
            lines.append(fitted(sizes[some_places], self.rounds[some_rounds].min(axis=0)[some_places]))
        fixed, per_sample = np.asarray(lines).T
        return fixed, per_sample


def fitted(batches: Floats, seconds: Floats) -> tuple[float, float]:
    """The line with the least relative squares, neither of whose parts is negative."""
    ones, slopes = 1 / seconds, batches / seconds
    (fixed, per_sample), *_ = np.linalg.lstsq(np.stack([ones, slopes], axis=1), np.ones(len(seconds)), rcond=None)
    if fixed < 0:
        return 0.0, float(slopes.sum() / (slopes @ slopes))
    if per_sample < 0:
        return float(ones.sum() / (ones @ ones)), 0.0
    return float(fixed), float(per_sample)


def spaced(now: int, cap: int, seconds_per_sample: float, seconds: float) -> tuple[int, ...]:
    """Five batches from a quarter of the present one up, each four times or twice the one before, as far as data,
    memory and time allow."""
    rounds = _FEWEST_ROUNDS + 1  # the first warms up; a round is at most twice its largest batch
    affordable = seconds / (2 * rounds * max(seconds_per_sample, 1e-12))
    low = max(1, now // 4)
    for ratio in (4, 2):
        if low * ratio ** (SIZES - 1) <= min(cap, max(affordable, 4 * now)):
            return tuple(low * ratio**place for place in range(SIZES))
    low = max(1, min(low, cap // 2**SIZES))
    sizes = {round(low * (cap / low) ** (place / (SIZES - 1))) for place in range(SIZES)}
    if len(sizes) < 3:
        raise Problem(f"{cap} samples are too few to time steps of several batches: give at least 8")
    return tuple(sorted(sizes))


def timed(
    batches: Sequence[int],
    step: Callable[[int], object],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> StepTimes:
    """Rounds of one step at each batch, in turn, so that a busy moment hits all of them; at least three."""
    for batch in batches:  # first touch: allocations and kernel choice
        step(batch)
    started = time.perf_counter()
    rounds: list[list[float]] = []
    while len(rounds) < _FEWEST_ROUNDS or (
        len(rounds) < _MOST_ROUNDS and time.perf_counter() - started < seconds * len(rounds) / (len(rounds) + 1)
    ):
        rounds.append([_seconds(step, batch, clock) for batch in batches])
    return StepTimes(tuple(batches), np.asarray(rounds))


def _seconds(step: Callable[[int], object], batch: int, clock: Callable[[], float]) -> float:
    started = clock()
    step(batch)
    return clock() - started
