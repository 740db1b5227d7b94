"""A whole measurement: rounds of every configuration, with the calibration of this machine where it is wanted.

From rounds to step times, phases, efficiencies or the reason why there is none, and simulated steps beside the measured
ones. A simulation starts from what one rank computes in a step. That is timed in the same start as the predicted steps,
in steps without communication: the next process may take much longer for the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean as mean
from statistics import median
from types import MappingProxyType
from typing import Any

from bigbatch.engines.ddp import default_bucket_mb
from bigbatch.scaling.measurement.calibration import (
    RANKS,
    Calibration,
    CalibrationRound,
    calibrate_round,
    summarize_rounds,
)
from bigbatch.scaling.measurement.request import Comparison, MeasurementRequest
from bigbatch.scaling.measurement.rounds import MeasuredRound, measure_round, rotate
from bigbatch.scaling.phases import StepPhases
from bigbatch.scaling.simulation import ENGINES, StepSimulator, configure_engine
from bigbatch.scaling.workload import EngineConfiguration, Workload

MOST_WALL_OVER_CPU = 1.1  # of one process that never waits: above it, others had its core
MOST_CORES_MISSING = 0.25
TOLERANCE = 0.25  # of a simulated step's error
_STEPS_WITHOUT_COMMUNICATION = 12
_PHASES = ("step_us", "forward_us", "backward_us", "exposed_us", "overlapped_us", "update_us", "negotiation_us")


@dataclass(frozen=True)
class ConfigurationTiming:
    """All rounds of a configuration."""

    configuration: EngineConfiguration
    rounds: tuple[MeasuredRound, ...]
    with_timeline: MeasuredRound | None = None  # one more, for its phases alone: writing a timeline takes time

    @property
    def best(self) -> MeasuredRound:
        return min(self.rounds, key=lambda one: one.wall_s)

    @property
    def best_s(self) -> float:
        return self.best.wall_s

    @property
    def median_s(self) -> float:
        return median(one.wall_s for one in self.rounds)

    @property
    def best_cpu_s(self) -> float:
        return min(one.cpu_s for one in self.rounds)

    @property
    def phases(self) -> StepPhases | None:
        """Medians over recorded steps and ranks, with the messages of one step of rank 0; None: nothing recorded."""
        ranks = (self.with_timeline or self.best).ranks
        steps = [step if step.messages else replace(step, overlapped_us=None) for rank in ranks for step in rank.steps]
        if not steps:
            return None
        known = {name: [us for step in steps if (us := getattr(step, name)) is not None] for name in _PHASES}
        medians: dict[str, Any] = {name: median(times_us) if times_us else None for name, times_us in known.items()}
        return StepPhases(**medians, bars=tuple(ranks[0].steps[-1].messages))


def group_rounds(
    rounds: Sequence[MeasuredRound], with_timeline: Mapping[EngineConfiguration, MeasuredRound] = MappingProxyType({})
) -> dict[EngineConfiguration, ConfigurationTiming]:
    configurations = dict.fromkeys(one.configuration for one in rounds)
    own = {name: tuple(one for one in rounds if one.configuration == name) for name in configurations}
    return {name: ConfigurationTiming(name, own[name], with_timeline.get(name)) for name in configurations}


@dataclass(frozen=True)
class MeasuredEfficiency:
    """Measured throughput over ranks x that of one process. `value` is None where `refusal` gives the reason."""

    comparison: Comparison
    alone: ConfigurationTiming
    ranks: ConfigurationTiming
    value: float | None
    refusal: str = ""


def compute_efficiency(
    comparison: Comparison, timings: Mapping[EngineConfiguration, ConfigurationTiming], cores: int
) -> MeasuredEfficiency:
    """Weak: T₁(B) / T_N(B). Strong: T₁(G) / (N · T_N(G/N)). Each T the best round's."""
    alone, ranks = timings[comparison.alone], timings[comparison.ranks]
    if refusal := _reason_to_refuse(alone.best, ranks.best, cores):
        return MeasuredEfficiency(comparison, alone, ranks, None, refusal)
    done = comparison.ranks.ranks * comparison.ranks.rank_batch / ranks.best_s
    ideal = comparison.ranks.ranks * comparison.alone.rank_batch / alone.best_s
    return MeasuredEfficiency(comparison, alone, ranks, done / ideal)


def _reason_to_refuse(alone: MeasuredRound, ranks: MeasuredRound, cores: int) -> str:
    """Return why an efficiency would tell more about the machine's other work than about the engine, or ''."""
    wall_over_cpu = alone.wall_s / alone.cpu_s
    if wall_over_cpu > MOST_WALL_OVER_CPU:
        return (
            f"the machine was too busy: one process alone needed {wall_over_cpu:.2f} times its CPU time "
            f"(load {alone.load_1min:.1f}), measure again when it is idle"
        )
    if ranks.others_cores is None:  # ranks were on other machines, or /proc is missing
        return ""
    count = ranks.configuration.ranks
    if count > cores:
        return f"{count} ranks took turns on {cores} cores: measure with at most {cores} ranks here"
    if count + ranks.others_cores - cores > MOST_CORES_MISSING:
        return (
            f"the machine was too busy: other processes used {ranks.others_cores:.1f} of its {cores} cores "
            f"(load {ranks.load_1min:.1f}), measure again when it is idle"
        )
    return ""


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


def predict_step(timing: ConfigurationTiming, simulator: StepSimulator) -> StepPrediction:
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
    engine, profile, machine = configuration.engine, calibration.profile, calibration.machine
    simulated = configure_engine(
        engine, simulator_options(engine, dict(model.run(configuration).engine), profile.gradient_bytes)
    )
    if engine == "horovod":
        return StepSimulator(profile, simulated, machine)
    # the profile has DDP's copies into buckets in it
    return StepSimulator(calibration.profile_in_ddp, simulated, machine.model_copy(update={"copy_gb_s": None}))


def simulator_options(engine: str, options: Mapping[str, Any], gradient_bytes: int) -> dict[str, Any]:
    """Return an engine's options under the names of the simulator."""
    if engine == "horovod":
        kept = {name: options[name] for name in ("fusion_mb", "cache_capacity")}
        return {"cycle_ms": max(options["cycle_ms"], 1e-3), **kept}
    bucket_mb = options["bucket_mb"] or default_bucket_mb(gradient_bytes)
    # a cap of one's own holds for torch's first bucket too
    return {"bucket_mb": bucket_mb, "first_bucket_mb": bucket_mb}


def expected_step_us(simulator: StepSimulator, without_communication_s: Sequence[float]) -> float:
    """Return the mean of simulated steps whose computation takes as long as these steps without communication."""
    # the other rank, the slower one of both, and Horovod's cycles are in these already
    machine = simulator.machine.model_copy(update={"cycle_cost_us": 0.0})
    factors = [1e6 * step_s / simulator.profile.compute_us for step_s in without_communication_s]
    steps = simulator.engine.simulate_steps(simulator.profile, factors, machine, RANKS)
    return mean(step.step_us for step in steps)


@dataclass(frozen=True)
class Measurement:
    """The result of `bigbatch scale measure`."""

    request: MeasurementRequest
    rounds: tuple[MeasuredRound, ...]
    cores: int
    with_timeline: dict[EngineConfiguration, MeasuredRound] = field(default_factory=dict)
    calibration: Calibration | None = None
    interrupted: bool = False  # by Ctrl-C, before all rounds were complete

    @cached_property
    def timings(self) -> dict[EngineConfiguration, ConfigurationTiming]:
        return group_rounds(self.rounds, self.with_timeline)

    @cached_property
    def efficiencies(self) -> list[MeasuredEfficiency]:
        return [compute_efficiency(one, self.timings, self.cores) for one in self.request.comparisons]

    @property
    def refusals(self) -> list[str]:
        """Why step times tell more about the machine than about the engines, and judge no simulation."""
        return list(dict.fromkeys(one.refusal for one in self.efficiencies if one.refusal))

    @cached_property
    def predictions(self) -> list[StepPrediction]:
        """Simulated steps, where the simulator was calibrated."""
        if self.calibration is None:
            return []
        rank_batch = self.calibration.profile.rank_batch
        return [
            predict_step(timing, build_simulator(one, self.request.model, self.calibration))
            for one, timing in self.timings.items()
            if one.engine in ENGINES and one.ranks == RANKS and one.rank_batch == rank_batch
        ]


def measure(
    request: MeasurementRequest, report: Callable[[str], None], *, calibrate: bool, with_timeline: bool = True
) -> Measurement:
    """Calibration, where it is wanted and ranks are on this machine, takes its turn in every round.

    `with_timeline`: one more start for each configuration of Horovod, with its timeline. Ctrl-C ends the measurement
    with the rounds that are complete; before the first one is, it ends everything.
    """
    model, total = request.model, request.counts.rounds
    calibrate = calibrate and not request.hosts and RANKS in request.ranks
    with_horovod = any(one.engine == "horovod" for one in request.configurations)
    counts = replace(request.counts, steps_without_communication=_STEPS_WITHOUT_COMMUNICATION if calibrate else 0)
    calibrated: list[CalibrationRound] = []
    complete: list[list[MeasuredRound]] = []
    timelines: dict[EngineConfiguration, MeasuredRound] = {}
    interrupted = False
    try:
        for number in range(total):
            if calibrate:
                report(f"round {number + 1} of {total}: calibration")
                calibrated.append(
                    calibrate_round(model, request.rank_batch, request.gradient_bytes, with_horovod=with_horovod)
                )
            measured = []
            for one in rotate(request.configurations, number):
                found = replace(measure_round(model, one, counts, request.hosts), number=number)
                report(f"round {number + 1} of {total}: {one.label}: {1e3 * found.wall_s:.1f} ms per step")
                measured.append(found)
            complete.append(measured)
        for one in request.configurations:
            if with_timeline and one.engine == "horovod" and not one.settings:
                found = measure_round(model, one, request.counts, with_timeline=True)
                timelines[one] = replace(found, number=total)
    except KeyboardInterrupt:
        if not complete:
            raise
        interrupted = True
        report(f"interrupted: what follows is of the {len(complete)} complete of {total} rounds")
    return Measurement(
        request=replace(request, counts=replace(request.counts, rounds=len(complete))),
        rounds=tuple(one for measured in complete for one in measured),
        cores=os.cpu_count() or 1,
        with_timeline=timelines,
        calibration=summarize_rounds(calibrated[: len(complete)]) if calibrated else None,
        interrupted=interrupted,
    )
