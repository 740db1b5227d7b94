"""From measurements to advice: a batch, what it brings, how certain that is, and what it is based on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bigbatch.advice.costs import MemoryUse, StepTimes
from bigbatch.advice.goodput import (
    Evidence,
    Expectation,
    GoodputModel,
    GoodputPoint,
    Grade,
    grade_evidence,
    round_to_power_of_two,
)
from bigbatch.advice.history import CurvaturePeak, CurvaturePoint, NoisePoint, StridePoint
from bigbatch.advice.learner import Learner
from bigbatch.advice.learning_rates import ScheduleRule, TensorSummary, scale_schedule
from bigbatch.advice.measurement import Conditions, Measurements
from bigbatch.advice.verification import Verification
from bigbatch.artifacts import atomic
from bigbatch.artifacts.metrics import dump_json
from bigbatch.probes.gradient import GradientMeasurement
from bigbatch.probes.measurement.record import Record, to_json
from bigbatch.probes.noise_scale import Interval

_CURVE_POINTS = 41


@dataclass(frozen=True, kw_only=True)
class Advice(Record):
    """Which global batch to use. `interval` is that of `optimum`, B*; `batch` is a power of two near it."""

    of: str
    batch: int
    fraction_of_best: float  # of the goodput at B*, or at the nearest batch that was timed and has data
    optimum: float | None  # None: infinite
    interval: Interval
    grade: Grade
    reasons: list[str]
    noise_scale: float  # the lower end where only that is known
    noise_scale_interval: Interval
    only_lower_bound: bool
    memory_cap: int | None
    data_cap: int
    limited_by: str | None  # data, memory, or times: the smallest batch that was timed
    now: int
    schedule: dict[str, ScheduleRule]
    expected: dict[str, Expectation]  # steps, samples and seconds
    goodput: list[GoodputPoint]
    step_times: StepTimes
    memory: MemoryUse
    over_training: list[NoisePoint]  # the last one is what the answer uses
    gradient: GradientMeasurement
    strides: list[StridePoint]
    lipschitz: list[CurvaturePoint]
    lipschitz_peaks: list[CurvaturePeak]
    layers: list[TensorSummary]
    verified: Verification | None = None
    about: Conditions
    warnings: list[str]

    def to_json(self) -> str:
        """All of it as standard JSON: what is not finite is null."""
        return dump_json(to_json(self), indent=2)

    def show(self) -> None:
        """Print it on one screen of a terminal."""
        from bigbatch.advice.report import print_advice

        print_advice(self)

    def write(self, folder: Path | str) -> Path:
        """Write advise.json and advise.html; return the page's path."""
        from bigbatch.advice.page import build_page

        atomic.write_text(Path(folder) / "advise.json", self.to_json() + "\n")
        return build_page(self).write(Path(folder) / "advise.html")


def recommend(learner: Learner, found: Measurements) -> Advice:
    """The advice, without verification."""
    noise, times = found.noise, found.step_times
    estimates = noise.best_known, times.fixed_seconds, times.seconds_per_sample
    model = GoodputModel(learner.now, estimates, (noise.draws, *times.bootstrap_lines()))
    smallest, largest = times.batches[0], times.batches[-1]
    batch, limited_by = _choose_batch(learner, model, found.memory.cap, smallest)
    evidence = Evidence(
        interval=model.optimum_interval,
        only_lower_bound=noise.only_lower_bound,
        misfit=times.misfit,
        spread=times.spread,
        steps=learner.steps,
        warmup_is_over=learner.warmup_is_over,
        best=min(model.optimum, learner.data_cap),
        timed=(smallest, largest),
        drift=_noise_drift(found),
    )
    grade, reasons = grade_evidence(evidence)
    reachable = min(max(model.optimum, smallest), learner.data_cap)
    total_epochs = None if learner.total_samples is None else learner.total_samples / learner.samples_per_epoch
    weight_decay = float(learner.optimizer.param_groups[0].get("weight_decay", 0.0))
    lowest = max(1, min(smallest, batch, learner.now) // 2)
    highest = max(largest, 4 * batch, 4 * learner.now, min(2 * noise.best_known, 64 * batch))
    curve = {int(size) for size in np.geomspace(lowest, highest, _CURVE_POINTS).round()} | {batch, learner.now}
    return Advice(
        of=learner.of,
        batch=batch,
        fraction_of_best=model.goodput(batch) / model.goodput(reachable),
        optimum=model.optimum,
        interval=evidence.interval,
        grade=grade,
        reasons=reasons,
        noise_scale=noise.best_known,
        noise_scale_interval=noise.interval,
        only_lower_bound=noise.only_lower_bound,
        memory_cap=found.memory.cap,
        data_cap=learner.data_cap,
        limited_by=limited_by,
        now=learner.now,
        schedule=scale_schedule(batch, learner.baseline, found.layers, weight_decay, total_epochs),
        expected=model.expect(batch, learner.total_samples),
        goodput=[model.goodput_point(size) for size in sorted(curve)],
        step_times=times,
        memory=found.memory,
        gradient=found.gradient,
        **vars(found.history),
        layers=found.layers,
        about=found.about,
        warnings=[*found.warnings, *_list_warnings(learner, found, batch, limited_by)],
    )


def _noise_drift(found: Measurements) -> float | None:
    """The noise scale over that of the previous point; None where that point has no lower end.

    A point that has only a lower end is compared with the present upper end: 1 unless that is below it.
    """
    before = [row for row in found.history.over_training[:-1] if row.interval and row.interval[0] is not None]
    if not before or before[-1].interval is None or before[-1].interval[0] is None:
        return None
    low, high = before[-1].interval
    estimate = before[-1].estimate
    if high is not None and estimate is not None:
        return found.noise.best_known / estimate
    upper = found.noise.interval[1]
    return found.noise.best_known / low if upper is not None and low is not None and upper < low else 1.0


def _choose_batch(
    learner: Learner, model: GoodputModel, memory_cap: int | None, smallest_timed: int
) -> tuple[int, str | None]:
    """The batch to advise, and what kept it from being the best. Micro-batches remove memory's limit, not the data's.
    Below the smallest batch that was timed the line is not reliable: there the fixed cost dominates. A batch that is
    not faster than the present one is not advised."""
    best = model.optimum
    cap, by = learner.data_cap, "data"
    if learner.whole_batch_at_once and memory_cap is not None and memory_cap < cap:
        cap, by = memory_cap, "memory"
    limited_by = by if best > cap else "times" if best < smallest_timed else None
    batch = round_to_power_of_two(best, smallest_timed, cap)
    if learner.now <= cap and model.goodput(batch) <= 1:
        return learner.now, limited_by if limited_by != "times" else None
    return batch, limited_by


def _list_warnings(learner: Learner, found: Measurements, batch: int, limited_by: str | None) -> list[str]:
    warnings = []
    if found.noise.only_lower_bound:
        warnings.append(
            "the noise scale is only a lower bound: batches of this data are too small to separate the gradient from "
            "its noise, so the best batch is at least the one given"
        )
    if found.step_times.seconds_per_sample == 0:
        warnings.append("step time does not grow with the batch in the range that was timed: time larger --batches")
    if limited_by == "times":
        warnings.append(
            f"the best batch seems to be below {found.step_times.batches[0]}, the smallest that was timed: a step has "
            f"little fixed cost here, and larger batches save no time; --batches times smaller ones"
        )
    elif limited_by:
        warnings.append(f"the best batch is beyond what {limited_by} allows: {batch:,} is the largest that fits")
    if learner.batchnorm_group is not None and batch < learner.batchnorm_group:
        warnings.append(
            f"BatchNorm normalises over {learner.batchnorm_group} samples now; with a batch of {batch:,} over that "
            "many, which may cost accuracy"
        )
    return warnings
