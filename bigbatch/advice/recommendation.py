"""From measurements to advice: a batch, what it brings, how certain that is, and what it is based on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bigbatch.advice.branching import Branching, Verification
from bigbatch.advice.costs import MemoryUse, StepTimes
from bigbatch.advice.goodput import (
    LEVEL,
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
from bigbatch.advice.learning_rates import ScaledSchedule, TensorSummary, scale_schedule
from bigbatch.advice.measurement import Conditions, MeasurementResults
from bigbatch.advice.noise import NoiseOutlook, project_noise
from bigbatch.artifacts import atomic
from bigbatch.artifacts.metrics import dump_json
from bigbatch.probes.gradient import GradientMeasurement
from bigbatch.probes.measurement.record import Record, to_json
from bigbatch.probes.noise_scale import Interval, quantile_interval

_CURVE_POINTS = 41


@dataclass(frozen=True, kw_only=True)
class Advice(Record):
    """Which global batch to use. `interval` is that of `optimum`, B*; `batch` is a power of two near it."""

    of: str
    batch: int
    fraction_of_best: float  # of the goodput at B*, or at the nearest batch that was timed and has data
    optimum: float | None  # None: unknown, below the smallest batch that was timed, or infinite
    interval: Interval
    grade: Grade
    reasons: list[str]
    noise_scale: float | None  # as measured, the lower end where only that is known; None: cannot tell
    noise_scale_interval: Interval  # over the rest of the training, and over initialisations
    branched: Branching | None
    trusted: str  # what the answer uses: noise scale or branching
    outlook: NoiseOutlook
    only_lower_bound: bool
    memory_cap: int | None
    data_cap: int
    limited_by: str | None  # data, memory, or times: the smallest batch that was timed
    now: int
    schedule: dict[str, ScaledSchedule]
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


def recommend(learner: Learner, found: MeasurementResults, branched: Branching | None = None) -> Advice:
    """The advice, without verification. Where branches found a critical batch, that takes the noise scale's place."""
    noise, times = found.noise, found.step_times
    trusted, scale, draws, only_lower_bound = "noise scale", noise.best_known, noise.draws, noise.only_lower_bound
    if branched and branched.critical_batch:
        trusted = "branching"
        scale, draws, only_lower_bound = branched.estimate, branched.draws, branched.beyond is None
    estimates = scale or 0.0, times.fixed_seconds, times.seconds_per_sample
    projected = project_noise(draws, found.outlook)
    model = GoodputModel(learner.now, estimates, (projected, *times.bootstrap_lines()))
    smallest, largest = times.batches[0], times.batches[-1]
    batch, limited_by = learner.now, None
    if scale:
        batch, limited_by = _choose_batch(learner, model, found.memory.cap, smallest)
    evidence = Evidence(
        source=trusted,
        critical_batch=scale,
        interval=model.optimum_interval,
        only_lower_bound=only_lower_bound,
        misfit=times.misfit,
        spread=times.spread,
        steps=learner.steps,
        warmup_is_over=learner.warmup_is_over,
        best=min(model.optimum, learner.data_cap),
        timed=(smallest, largest),
    )
    grade, reasons = grade_evidence(evidence)
    reachable = min(max(model.optimum, smallest), learner.data_cap)
    total_epochs = None if learner.total_samples is None else learner.total_samples / learner.samples_per_epoch
    layers = found.layers if learner.trains_by_plain_gradient else None
    weight_decay = float(learner.optimizer.param_groups[0].get("weight_decay", 0.0))
    lowest = max(1, min(smallest, batch, learner.now) // 2)
    highest = max(largest, 4 * batch, 4 * learner.now, min(2 * estimates[0], 64 * batch))
    curve = {int(size) for size in np.geomspace(lowest, highest, _CURVE_POINTS).round()} | {batch, learner.now}
    return Advice(
        of=learner.of,
        batch=batch,
        fraction_of_best=model.goodput(batch) / model.goodput(reachable),
        optimum=model.optimum or None,
        interval=evidence.interval,
        grade=grade,
        reasons=reasons,
        noise_scale=noise.best_known,
        noise_scale_interval=quantile_interval(project_noise(noise.draws, found.outlook), LEVEL),
        branched=branched,
        trusted=trusted,
        outlook=found.outlook,
        only_lower_bound=noise.only_lower_bound,
        memory_cap=found.memory.cap,
        data_cap=learner.data_cap,
        limited_by=limited_by,
        now=learner.now,
        schedule=scale_schedule(batch, learner.baseline, layers, weight_decay, total_epochs),
        expected=model.expect(batch, learner.total_samples),
        goodput=[model.goodput_point(size) for size in sorted(curve)],
        step_times=times,
        memory=found.memory,
        gradient=found.gradient,
        **vars(found.history),
        layers=found.layers,
        about=found.about,
        warnings=[*found.warnings, *_list_warnings(learner, found, batch, limited_by, trusted)],
    )


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


def _list_warnings(
    learner: Learner, found: MeasurementResults, batch: int, limited_by: str | None, trusted: str
) -> list[str]:
    warnings = []
    if found.noise.best_known is None:
        warnings.append(
            "all samples have the same gradient, so there is no noise that a larger batch would average out: if the "
            "samples are not meant to be identical, check how the data is read"
        )
    elif found.noise.only_lower_bound and trusted == "noise scale":
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
