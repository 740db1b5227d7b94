"""The number of ranks with the shortest training: less time per step against more samples to the same loss.

A global batch B needs (φ + B)/(φ + B₀) times the samples of B₀, the present global batch, with φ the noise scale; the
time of a step comes from the simulator. N ranks can divide the present batch (B₀/N each), take the largest batch that
fits (filled), or the batch with the shortest training (best). Times are relative to one rank at the present batch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from bigbatch.errors import Problem
from bigbatch.scaling.machine import Machine
from bigbatch.scaling.options import PlanOptions
from bigbatch.scaling.simulation import StepSimulator, configure_engine
from bigbatch.scaling.step import SimulatedEngine
from bigbatch.scaling.workload import ProfileAtBatch, parse_workload

BatchRule = Literal["best", "divided", "filled"]
BATCH_RULES: tuple[BatchRule, ...] = ("best", "divided", "filled")


@dataclass(frozen=True)
class NoiseScale:
    """The noise scale in samples, and its interval if known: then an end that is None is infinite."""

    scale: float
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        if self.low is None and self.high is None:
            return self.scale, self.scale
        return (math.inf if self.low is None else self.low), (math.inf if self.high is None else self.high)


@dataclass(frozen=True)
class TrainingTime:
    """The training time on some ranks with some global batch, over that of one rank at the present global batch."""

    batch_rule: BatchRule
    ranks: int
    global_batch: int
    rank_batch: int
    step_us: float
    samples: float  # to the same loss, over those at the present global batch
    time: float
    time_low: float  # over the interval of the noise scale
    time_high: float


@dataclass(frozen=True)
class TrainingTimeEstimator:
    """Estimates training times for any number of ranks. `most_rank_batch` is what one rank holds in one pass."""

    profiles: ProfileAtBatch
    engine: SimulatedEngine
    machine: Machine
    global_batch: int
    most_rank_batch: int
    noise: NoiseScale

    def estimate(self, ranks: Sequence[int]) -> list[TrainingTime]:
        """Apply every batch rule to each number of ranks; the present batch is divided if each rank gets a sample."""
        times = []
        for count in ranks:
            others = [self._estimate("filled", count, count * self.most_rank_batch)]
            if count <= self.global_batch:
                others.insert(0, self._estimate("divided", count, self.global_batch))
            times += [self._best(count, others), *others]
        return times

    def _best(self, ranks: int, others: list[TrainingTime]) -> TrainingTime:
        """Return the shortest time of powers of two per rank and of the others, at no less than the present batch.

        Costs of a step besides its samples (optimizer, input) are hardly in the layers' times, so that small batches
        would look too good.
        """
        powers = (ranks * 2**power for power in range((self.most_rank_batch - 1).bit_length()))
        times = [*others, *(self._estimate("best", ranks, batch) for batch in powers)]
        return replace(shortest([one for one in times if one.global_batch >= self.global_batch]), batch_rule="best")

    @cached_property
    def _alone_us(self) -> float:
        return self._step_us(1, self.global_batch)

    def _estimate(self, batch_rule: BatchRule, ranks: int, global_batch: int) -> TrainingTime:
        step_us, alone_us = self._step_us(ranks, global_batch), self._alone_us

        def time(noise_scale: float) -> float:
            steps = self._samples(global_batch, noise_scale) * self.global_batch / global_batch
            return steps * step_us / alone_us

        ends = [time(end) for end in self.noise.ends]
        return TrainingTime(
            batch_rule=batch_rule,
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
        from bigbatch.probes.noise_scale import samples_factor

        return float(samples_factor(global_batch, self.global_batch, noise_scale))

    def _step_us(self, ranks: int, global_batch: int) -> float:
        """Where a rank's batch does not fit, it takes several passes, and only the last one communicates."""
        rank_batch = math.ceil(global_batch / ranks)
        passes = math.ceil(rank_batch / self.most_rank_batch)
        profile = self.profiles(math.ceil(rank_batch / passes))
        earlier_us = (passes - 1) * (profile.forward_us + profile.backward_us)
        profile = replace(profile, forward_us=profile.forward_us + earlier_us)
        return StepSimulator(profile, self.engine, self.machine).step_us(ranks)


def shortest(times: Sequence[TrainingTime]) -> TrainingTime:
    """Return the shortest time; of equal ones that with the fewest ranks."""
    return min(times, key=lambda one: (one.time, one.ranks))


@dataclass(frozen=True)
class TrainingPlan:
    """Training times for the options of `bigbatch scale plan`; `about` says what was simulated."""

    times: Sequence[TrainingTime]
    most_ranks: int
    about: Mapping[str, Any]


def plan_training(options: PlanOptions) -> TrainingPlan:
    """Check all options, then estimate training times up to the largest number of ranks."""
    noise = parse_noise_scale(options.noise_scale)
    workload, machine_settings = parse_workload(options, [options.engine])
    engine = configure_engine(options.engine, workload.engine_options[options.engine])
    machine, ranks, profiles = options.build(workload, machine_settings)
    estimator = TrainingTimeEstimator(
        profiles, engine, machine, options.global_batch, most_rank_batch=options.rank_batch, noise=noise
    )
    about = {
        "simulated": True,
        "model": options.model,
        "machine": machine.name,
        "engine": engine.name,
        "global_batch": options.global_batch,
        "most_rank_batch": options.rank_batch,
        "noise_scale": noise.scale,
        "times": profiles(options.rank_batch).source,
    }
    return TrainingPlan(estimator.estimate(ranks), options.to, about)


def parse_noise_scale(given: str) -> NoiseScale:
    """Read a number, or the JSON that `bigbatch advise` wrote."""
    low = high = None
    try:
        scale = float(given)
    except ValueError:
        try:
            advice = json.loads(Path(given).read_text(encoding="utf-8"))
            scale = float(advice["noise_scale"])
            low, high = advice.get("noise_scale_interval") or (None, None)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Problem(
                f"--noise-scale {given} is neither a number nor advice with a noise_scale: "
                "give a number of samples, or the JSON of 'bigbatch advise --json'"
            ) from error
    for value in (scale, low, high):
        if value is not None and not 0 <= value < math.inf:
            raise Problem(f"--noise-scale {given} contains {value}: use a finite number of samples from 0 on")
    return NoiseScale(scale, low, high)
