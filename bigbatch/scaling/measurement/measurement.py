"""A whole measurement: rounds of every configuration, with the calibration of this machine where it is wanted."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from bigbatch.scaling.measurement import calibration
from bigbatch.scaling.measurement.calibration import Calibration, CalibrationRound
from bigbatch.scaling.measurement.prediction import StepPrediction, predict_steps
from bigbatch.scaling.measurement.request import MeasurementRequest
from bigbatch.scaling.measurement.rounds import MeasuredRound, measure_round, rotate
from bigbatch.scaling.measurement.timings import (
    ConfigurationTiming,
    MeasuredEfficiency,
    compute_efficiency,
    group_rounds,
)
from bigbatch.scaling.workload import EngineConfiguration

_STEPS_WITHOUT_COMMUNICATION = 12


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
        return predict_steps(self.timings, self.request.model, self.calibration)


def measure(
    request: MeasurementRequest, report: Callable[[str], None], *, calibrate: bool, with_timeline: bool = True
) -> Measurement:
    """Calibration, where it is wanted and ranks are on this machine, takes its turn in every round.

    `with_timeline`: one more start for each configuration of Horovod, with its timeline. Ctrl-C ends the measurement
    with the rounds that are complete; before the first one is, it ends everything.
    """
    model, total = request.model, request.counts.rounds
    calibrate = calibrate and not request.hosts and calibration.RANKS in request.ranks
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
                    calibration.calibrate_round(
                        model, request.rank_batch, request.gradient_bytes, with_horovod=with_horovod
                    )
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
        calibration=calibration.summarize_rounds(calibrated[: len(complete)]) if calibrated else None,
        interrupted=interrupted,
    )
