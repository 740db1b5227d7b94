"""The simulator's step beside the measured one, for every case that the calibration speaks of.

A simulation starts from what one rank computes in a step. That is timed in the same start as the steps that are
predicted, in steps in which nothing is sent: on many a machine the next process takes a fifth longer for the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean as mean
from statistics import median
from typing import Any

from bigbatch.engines.ddp import own_bucket_mb
from bigbatch.scaling.curve import ENGINES, Setting, configured
from bigbatch.scaling.measured.calibration import RANKS, Calibration
from bigbatch.scaling.measured.cases import Case, Subject
from bigbatch.scaling.measured.timings import Round, Timing

WITHIN = 0.25


@dataclass(frozen=True)
class Predicted:
    """Medians of rounds; `error` is simulated over measured, minus 1."""

    case: Case
    measured_s: float
    simulated_s: float

    @property
    def error(self) -> float:
        return self.simulated_s / self.measured_s - 1

    @property
    def holds(self) -> bool:
        return abs(self.error) <= WITHIN


def predicted(found: Mapping[Case, Timing], subject: Subject, calibration: Calibration) -> list[Predicted]:
    rank_batch = calibration.profile.rank_batch
    return [
        Predicted(
            case, timing.median_s, median(1e-6 * simulated_us(one, subject, calibration) for one in timing.rounds)
        )
        for case, timing in found.items()
        if case.engine in ENGINES and case.ranks == RANKS and case.rank_batch == rank_batch
    ]


def simulated_us(one: Round, subject: Subject, calibration: Calibration) -> float:
    """The expected step of one start: the mean of steps as long as those that it took with nothing to send."""
    case, machine = one.case, calibration.machine
    options = dict(subject.run(case).engine)
    config = configured(case.engine, simulated_options(case.engine, options, calibration.profile.gradient_bytes))
    profile = calibration.profile_in_ddp if case.engine == "ddp" else calibration.profile
    if case.engine == "ddp":
        machine = machine.model_copy(update={"copy_gb_s": None})  # the profile has copies into buckets in it
    if not one.silent_s:
        return Setting(profile, case.engine, config, machine).step_us(RANKS)
    # the other rank, the slower one of both, and Horovod's cycles are in these already
    machine = machine.model_copy(update={"cycle_cost_us": 0.0})
    factors = [1e6 * step_s / profile.compute_us for step_s in one.silent_s]
    return mean(step.step_us for step in ENGINES[case.engine].typical(profile, factors, config, machine, RANKS))


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
