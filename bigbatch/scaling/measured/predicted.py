"""The simulator's step beside the measured one, for every case that the calibration speaks of.

A simulation starts from what one rank computes in a step. That is timed in the same start as the steps that are
predicted, in steps in which nothing is sent: the next process may take much longer for the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean as mean
from statistics import median
from typing import Any

from bigbatch.engines.ddp import own_bucket_mb
from bigbatch.scaling.measured.calibration import RANKS, Calibration
from bigbatch.scaling.measured.cases import Case, Subject
from bigbatch.scaling.measured.timings import Timing
from bigbatch.scaling.simulation import ENGINES, StepSimulator, configure_engine

WITHIN = 0.25


@dataclass(frozen=True)
class Predicted:
    """Medians of rounds: of the median step of each, and of the expected one. `error`: simulated over measured - 1."""

    case: Case
    measured_s: float
    simulated_s: float  # from the steps without messages of the same start
    calibrated_s: float  # from the calibration alone, which had processes of its own
    silent_s: float | None = None  # those steps

    @property
    def error(self) -> float:
        return self.simulated_s / self.measured_s - 1

    @property
    def calibrated_error(self) -> float:
        return self.calibrated_s / self.measured_s - 1

    @property
    def holds(self) -> bool:
        return abs(self.error) <= WITHIN


def predicted(found: Mapping[Case, Timing], subject: Subject, calibration: Calibration) -> list[Predicted]:
    rank_batch = calibration.profile.rank_batch
    return [
        _predicted(timing, simulation(case, subject, calibration))
        for case, timing in found.items()
        if case.engine in ENGINES and case.ranks == RANKS and case.rank_batch == rank_batch
    ]


def _predicted(timing: Timing, setting: StepSimulator) -> Predicted:
    calibrated_us = setting.step_us(RANKS)
    starts = [one.silent_s for one in timing.rounds if one.silent_s]
    return Predicted(
        case=timing.case,
        measured_s=timing.median_s,
        simulated_s=1e-6 * (median(step_us(setting, steps) for steps in starts) if starts else calibrated_us),
        calibrated_s=1e-6 * calibrated_us,
        silent_s=median(map(median, starts)) if starts else None,
    )


def simulation(case: Case, subject: Subject, calibration: Calibration) -> StepSimulator:
    options = dict(subject.run(case).engine)
    config = configure_engine(case.engine, simulated_options(case.engine, options, calibration.profile.gradient_bytes))
    if case.engine == "horovod":
        return StepSimulator(calibration.profile, "horovod", config, calibration.machine)
    copied = calibration.machine.model_copy(update={"copy_gb_s": None})  # the profile has copies into buckets in it
    return StepSimulator(calibration.profile_in_ddp, case.engine, config, copied)


def step_us(setting: StepSimulator, silent_s: Sequence[float]) -> float:
    """The expected step: the mean of steps that compute as long as these, in which nothing was sent."""
    # the other rank, the slower one of both, and Horovod's cycles are in these already
    machine = setting.machine.model_copy(update={"cycle_cost_us": 0.0})
    factors = [1e6 * step_s / setting.profile.compute_us for step_s in silent_s]
    steps = ENGINES[setting.engine].simulate_steps(setting.profile, factors, setting.config, machine, RANKS)
    return mean(step.step_us for step in steps)


def simulated_options(engine: str, options: Mapping[str, Any], gradient_bytes: int) -> dict[str, Any]:
    """An engine's options as the simulator calls them."""
    if engine == "horovod":
        return {
            "cycle_ms": max(options["cycle_ms"], 1e-3),
            "fusion_mb": options["fusion_mb"],
            "cache_capacity": options["cache_capacity"],
        }
    bucket_mb = options["bucket_mb"] or own_bucket_mb(gradient_bytes)
    # a cap of one's own holds for torch's first bucket too
    return {"bucket_mb": bucket_mb, "first_bucket_mb": bucket_mb}
