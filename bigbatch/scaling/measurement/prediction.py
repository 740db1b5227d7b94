"""The simulated step beside the measured one, for every configuration that the calibration covers.

A simulation starts from what one rank computes in a step. That is timed in the same start as the predicted steps, in
steps without communication: the next process may take much longer for the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean as mean
from statistics import median
from typing import Any

from bigbatch.engines.ddp import default_bucket_mb
from bigbatch.scaling.measurement.calibration import RANKS, Calibration
from bigbatch.scaling.measurement.timings import ConfigurationTiming
from bigbatch.scaling.simulation import ENGINES, StepSimulator, configure_engine
from bigbatch.scaling.workload import EngineConfiguration, Workload

TOLERANCE = 0.25


@dataclass(frozen=True)
class StepPrediction:
    """Medians over rounds: of the median step of each, and of the expected one."""

    configuration: EngineConfiguration
    measured_s: float
    simulated_s: float  # from the steps without communication of the same start
    calibrated_s: float  # from the calibration alone, which had processes of its own
    without_communication_s: float | None = None  # those steps

    @property
    def error(self) -> float:
        return self.simulated_s / self.measured_s - 1

    @property
    def calibrated_error(self) -> float:
        return self.calibrated_s / self.measured_s - 1

    @property
    def within_tolerance(self) -> bool:
        return abs(self.error) <= TOLERANCE


def predict_steps(
    timings: Mapping[EngineConfiguration, ConfigurationTiming], model: Workload, calibration: Calibration
) -> list[StepPrediction]:
    rank_batch = calibration.profile.rank_batch
    return [
        _predict_step(timing, build_simulator(one, model, calibration))
        for one, timing in timings.items()
        if one.engine in ENGINES and one.ranks == RANKS and one.rank_batch == rank_batch
    ]


def _predict_step(timing: ConfigurationTiming, simulator: StepSimulator) -> StepPrediction:
    calibrated_us = simulator.step_us(RANKS)
    starts = [one.without_communication_s for one in timing.rounds if one.without_communication_s]
    simulated_us = median(expected_step_us(simulator, steps_s) for steps_s in starts) if starts else calibrated_us
    return StepPrediction(
        configuration=timing.configuration,
        measured_s=timing.median_s,
        simulated_s=1e-6 * simulated_us,
        calibrated_s=1e-6 * calibrated_us,
        without_communication_s=median(map(median, starts)) if starts else None,
    )


def build_simulator(configuration: EngineConfiguration, model: Workload, calibration: Calibration) -> StepSimulator:
    engine, profile = configuration.engine, calibration.profile
    options = simulator_options(engine, dict(model.run(configuration).engine), profile.gradient_bytes)
    simulated = configure_engine(engine, options)
    if engine == "horovod":
        return StepSimulator(profile, simulated, calibration.machine)
    # the profile has DDP's copies into buckets in it
    machine = calibration.machine.model_copy(update={"copy_gb_s": None})
    return StepSimulator(calibration.profile_in_ddp, simulated, machine)


def expected_step_us(simulator: StepSimulator, without_communication_s: Sequence[float]) -> float:
    """Return the mean of simulated steps whose computation takes as long as these steps without communication."""
    # the other rank, the slower one of both, and Horovod's cycles are in these already
    machine = simulator.machine.model_copy(update={"cycle_cost_us": 0.0})
    factors = [1e6 * step_s / simulator.profile.compute_us for step_s in without_communication_s]
    steps = simulator.engine.simulate_steps(simulator.profile, factors, machine, RANKS)
    return mean(step.step_us for step in steps)


def simulator_options(engine: str, options: Mapping[str, Any], gradient_bytes: int) -> dict[str, Any]:
    """Return an engine's options under the names of the simulator."""
    if engine == "horovod":
        return {
            "cycle_ms": max(options["cycle_ms"], 1e-3),
            "fusion_mb": options["fusion_mb"],
            "cache_capacity": options["cache_capacity"],
        }
    bucket_mb = options["bucket_mb"] or default_bucket_mb(gradient_bytes)
    # a cap of one's own holds for torch's first bucket too
    return {"bucket_mb": bucket_mb, "first_bucket_mb": bucket_mb}
