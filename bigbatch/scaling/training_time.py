"""The number of ranks that ends a training first: fewer seconds a step against more samples to the same loss.

A global batch B needs (φ + B)/(φ + B₀) times the samples of B₀, the batch of now, with φ the noise scale; the time of
a step comes from the simulator. N ranks can divide the batch of now (B₀/N each), be filled (all that one can hold), or
take what is best from the first on. Times are relative to one rank at the batch of now.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from bigbatch.errors import Problem
from bigbatch.scaling.machine import Machine
from bigbatch.scaling.simulation import StepSimulator
from bigbatch.scaling.workload import Profiles

Way = Literal["best", "divided", "filled"]
WAYS: tuple[Way, ...] = ("best", "divided", "filled")


@dataclass(frozen=True)
class Noise:
    """The noise scale with its interval, where it has one: then an end that is None is infinity."""

    scale: float
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        if self.low is None and self.high is None:
            return self.scale, self.scale
        return (math.inf if self.low is None else self.low), (math.inf if self.high is None else self.high)


@dataclass(frozen=True)
class Choice:
    """One way to use some ranks. Times are over that of one rank at the global batch of now."""

    way: Way
    ranks: int
    global_batch: int
    rank_batch: int
    step_us: float
    samples: float  # to the same loss, over those at the global batch of now
    time: float
    time_low: float  # over the interval of the noise scale
    time_high: float


@dataclass(frozen=True)
class Planner:
    """What stays the same for every number of ranks. `most_rank_batch` is what one rank holds in one pass."""

    profiles: Profiles
    engine: str
    config: BaseModel
    machine: Machine
    global_batch: int
    most_rank_batch: int
    noise: Noise

    def choices(self, ranks: Sequence[int]) -> list[Choice]:
        """Every way for each number of ranks; the batch of now is divided as far as each rank gets a sample."""
        return [choice for count in ranks for choice in self._of(count)]

    def _of(self, ranks: int) -> list[Choice]:
        filled = self._choice("filled", ranks, ranks * self.most_rank_batch)
        if ranks > self.global_batch:
            return [self._best(ranks, [filled]), filled]
        divided = self._choice("divided", ranks, self.global_batch)
        return [self._best(ranks, [divided, filled]), divided, filled]

    def _best(self, ranks: int, others: list[Choice]) -> Choice:
        """Of the powers of two a rank, and the others. Never less than the batch of now: what a step costs besides its
        samples (the optimizer, the input) is hardly in the layers' times, and small batches would look too good."""
        powers = (ranks * 2**power for power in range((self.most_rank_batch - 1).bit_length()))
        tried = [*others, *(self._choice("best", ranks, batch) for batch in powers)]
        return replace(best([one for one in tried if one.global_batch >= self.global_batch]), way="best")

    @cached_property
    def _alone_us(self) -> float:
        return self._step_us(1, self.global_batch)

    def _choice(self, way: Way, ranks: int, global_batch: int) -> Choice:
        step_us, alone_us = self._step_us(ranks, global_batch), self._alone_us

        def time(noise_scale: float) -> float:
            steps = self._samples(global_batch, noise_scale) * self.global_batch / global_batch
            return steps * step_us / alone_us

        ends = [time(end) for end in self.noise.ends]
        return Choice(
            way=way,
            ranks=ranks,
            global_batch=global_batch,
            rank_batch=math.ceil(global_batch / ranks),
            step_us=step_us,
            samples=self._samples(global_batch, self.noise.scale),
            time=time(self.noise.scale),
            time_low=min(ends),
            time_high=max(ends),
        )

    def _samples(self, global_batch: int, noise_scale: float) -> float:
        from bigbatch.advice.decide import samples_factor

        return float(samples_factor(global_batch, self.global_batch, noise_scale))

    def _step_us(self, ranks: int, global_batch: int) -> float:
        """Where a rank's share does not fit, in passes of which only the last one sends."""
        share = math.ceil(global_batch / ranks)
        passes = math.ceil(share / self.most_rank_batch)
        profile = self.profiles(math.ceil(share / passes))
        silent_us = (passes - 1) * (profile.forward_us + profile.backward_us)
        profile = replace(profile, forward_us=profile.forward_us + silent_us)
        return StepSimulator(profile, self.engine, self.config, self.machine).step_us(ranks)


def best(choices: Sequence[Choice]) -> Choice:
    """The shortest time; of equal ones the fewest ranks."""
    return min(choices, key=lambda choice: (choice.time, choice.ranks))


def noise(given: str) -> Noise:
    """A number, or the JSON that `bigbatch advise` wrote."""
    try:
        return _checked(Noise(float(given)), given)
    except ValueError:
        pass
    try:
        advice = json.loads(Path(given).read_text(encoding="utf-8"))
        low, high = advice.get("noise_scale_interval") or (None, None)
        return _checked(Noise(float(advice["noise_scale"]), low, high), given)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Problem(
            f"--noise-scale {given} is neither a number nor advice with a noise_scale in it: "
            "give a number of samples, or the JSON of 'bigbatch advise --json'"
        ) from error


def _checked(found: Noise, given: str) -> Noise:
    for value in (found.scale, found.low, found.high):
        if value is not None and not 0 <= value < math.inf:
            raise Problem(f"--noise-scale {given} has {value} in it: a noise scale is a number of samples from 0 on")
    return found
