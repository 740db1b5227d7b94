"""From measurements to advice: a batch, what it brings, how certain that is, and what it is based on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bigbatch.advice import learning_rates
from bigbatch.advice.costs import MemoryUse
from bigbatch.advice.goodput import (
    LEVEL,
    Evidence,
    Expectations,
    GoodputModel,
    GoodputPoint,
    Grade,
    Interval,
    grade_evidence,
    round_to_power_of_two,
)
from bigbatch.advice.history import CurvaturePeak, CurvaturePoint, History, NoisePoint, StridePoint
from bigbatch.advice.learner import Learner
from bigbatch.advice.measurement import AdviceMeasurements, TensorSummary
from bigbatch.advice.noise import NoiseSummary
from bigbatch.advice.prior import PublishedPrior
from bigbatch.advice.verification import Verification
from bigbatch.artifacts import atomic
from bigbatch.artifacts.metrics import dump_json
from bigbatch.probes.gradient import GradientMeasurement
from bigbatch.probes.measurement.record import Record, to_json

_CURVE_POINTS = 41


@dataclass(frozen=True)
class StepTimeFit(Record):
    """The time of a step at several batches, and the line a + b·B through it."""

    batches: list[int]
    seconds: list[float]
    rounds: int
    fixed_seconds: float
    seconds_per_sample: float
    misfit: float
    spread: float
    unit: str
    micro_batch: int | None


@dataclass(frozen=True)
class MemoryEstimate(MemoryUse):
    limits: str  # what the memory limits: the batch, or a micro-batch


@dataclass(frozen=True)
class Conditions(Record):
    """Where and when something was measured."""

    OMIT_IF_NONE = ("batchnorm", "dropout")

    seed: int
    steps: int
    steps_trained_here: int
    epochs: float
    warmup_epochs: float
    lr: float
    level: float
    lipschitz_radius: float | None
    seconds: dict[str, float]
    threads: int
    device: str
    mode: str
    batchnorm: str | None = None
    dropout: str | None = None


@dataclass(frozen=True)
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
    schedule: learning_rates.ScheduleRules
    expected: Expectations
    goodput: list[GoodputPoint]
    step_times: StepTimeFit
    noise: NoiseSummary
    memory: MemoryEstimate
    over_training: list[NoisePoint]
    gradient: GradientMeasurement
    strides: list[StridePoint]
    lipschitz: list[CurvaturePoint]
    lipschitz_peaks: list[CurvaturePeak]
    layers: list[TensorSummary]
    prior: PublishedPrior
    verified: Verification | None
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


def recommend(learner: Learner, found: AdviceMeasurements, recorded: History) -> Advice:
    """The advice, without verification."""
    model = _fit_goodput(learner, found)
    best, optimum_interval = model.optimum(), model.optimum_interval()
    timed = found.times.batches[0], found.times.batches[-1]
    batch, limited_by = _choose_batch(learner, model, found.memory.cap, timed[0])
    grade, reasons = grade_evidence(
        Evidence(
            interval=optimum_interval,
            only_lower_bound=model.only_lower_bound,
            misfit=found.times.misfit,
            spread=found.times.spread,
            steps=learner.steps,
            warmup_is_over=learner.warmup_is_over,
            best=min(best, learner.data_cap),
            timed=timed,
            drift=_noise_drift(found),
        )
    )
    reachable = min(max(best, timed[0]), learner.data_cap)
    total_epochs = None if learner.total_samples is None else learner.total_samples / learner.samples_per_epoch
    weight_decay = float(learner.optimizer.param_groups[0].get("weight_decay", 0.0))
    memory = found.memory
    limits = "the batch" if learner.whole_batch_at_once else "a micro-batch"
    return Advice(
        of=learner.of,
        batch=batch,
        fraction_of_best=model.goodput(batch) / model.goodput(reachable),
        optimum=best,
        interval=optimum_interval,
        grade=grade,
        reasons=reasons,
        noise_scale=model.noise_scale,
        noise_scale_interval=found.noise.interval,
        only_lower_bound=model.only_lower_bound,
        memory_cap=memory.cap,
        data_cap=learner.data_cap,
        limited_by=limited_by,
        now=learner.now,
        schedule=learning_rates.scale_schedule(batch, learner.baseline, found.layers, weight_decay, total_epochs),
        expected=model.expect(batch, learner.total_samples),
        goodput=[model.goodput_point(size) for size in _curve_batches(model, batch, timed)],
        step_times=_summarize_times(learner, found),
        noise=found.noise.summary(),
        memory=MemoryEstimate(
            memory.fixed_bytes, memory.bytes_per_sample, memory.available_bytes, memory.method, limits
        ),
        over_training=[*recorded.noise, *found.history.noise],
        gradient=found.gradient,
        strides=[*recorded.strides, *found.history.strides],
        lipschitz=[*recorded.curvature, *found.history.curvature],
        lipschitz_peaks=recorded.peaks,
        layers=found.layers,
        prior=PublishedPrior(),
        verified=None,
        about=_describe_conditions(learner, found),
        warnings=[*found.warnings, *learner.warnings, *_list_warnings(learner, model, batch, limited_by, timed[0])],
    )


def _fit_goodput(learner: Learner, found: AdviceMeasurements) -> GoodputModel:
    fixed, per_sample = found.times.line
    fixed_draws, per_sample_draws = found.times.bootstrap_lines()
    return GoodputModel(
        now=learner.now,
        noise_scale=found.noise.best_known,
        only_lower_bound=found.noise.only_lower_bound,
        fixed_seconds=fixed,
        seconds_per_sample=per_sample,
        noise_draws=found.noise.draws,
        fixed_draws=fixed_draws,
        per_sample_draws=per_sample_draws,
    )


def _noise_drift(found: AdviceMeasurements) -> float | None:
    """The noise scale over that of the previous point; None where that point has no lower end.

    A point that has only a lower end is compared with the present upper end: 1 unless that is below it.
    """
    before = [row for row in found.history.noise[:-1] if row.interval and row.interval[0] is not None]
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
    best = model.optimum()
    cap, by = learner.data_cap, "data"
    if learner.whole_batch_at_once and memory_cap is not None and memory_cap < cap:
        cap, by = memory_cap, "memory"
    limited_by = by if best > cap else "times" if best < smallest_timed else None
    batch = round_to_power_of_two(best, smallest_timed, cap)
    if learner.now <= cap and model.goodput(batch) <= 1:
        return learner.now, limited_by if limited_by != "times" else None
    return batch, limited_by


def _curve_batches(model: GoodputModel, batch: int, timed: tuple[int, int]) -> list[int]:
    low = max(1, min(timed[0], batch, model.now) // 2)
    high = max(timed[1], 4 * batch, 4 * model.now, min(2 * model.noise_scale, 64 * batch))
    sizes = np.geomspace(low, high, _CURVE_POINTS).round().astype(int)
    return sorted({int(size) for size in sizes} | {batch, model.now})


def _summarize_times(learner: Learner, found: AdviceMeasurements) -> StepTimeFit:
    fixed, per_sample = found.times.line
    return StepTimeFit(
        batches=list(found.times.batches),
        seconds=found.times.shortest.tolist(),
        rounds=len(found.times.rounds),
        fixed_seconds=fixed,
        seconds_per_sample=per_sample,
        misfit=found.times.misfit,
        spread=found.times.spread,
        unit="CPU seconds of one thread" if learner.counts_cpu_seconds else "seconds",
        micro_batch=learner.micro_batch,
    )


def _list_warnings(
    learner: Learner, model: GoodputModel, batch: int, limited_by: str | None, smallest_timed: int
) -> list[str]:
    found = []
    if model.only_lower_bound:
        found.append(
            "the noise scale is only a lower bound: batches of this data are too small to separate the gradient from "
            "its noise, so the best batch is at least the one given"
        )
    if model.seconds_per_sample == 0:
        found.append("step time does not grow with the batch in the range that was timed: time larger --batches")
    if limited_by == "times":
        found.append(
            f"the best batch seems to be below {smallest_timed}, the smallest that was timed: a step has little fixed "
            f"cost here, and larger batches save no time; --batches times smaller ones"
        )
    elif limited_by:
        found.append(f"the best batch is beyond what {limited_by} allows: {batch:,} is the largest that fits")
    if learner.batchnorm_group is not None and batch < learner.batchnorm_group:
        found.append(
            f"BatchNorm normalises over {learner.batchnorm_group} samples now; with a batch of {batch:,} over that "
            "many, which may cost accuracy"
        )
    return found


def _describe_conditions(learner: Learner, found: AdviceMeasurements) -> Conditions:
    return Conditions(
        seed=learner.probed.seed,
        steps=learner.steps,
        steps_trained_here=found.steps_trained,
        epochs=learner.epochs,
        warmup_epochs=learner.warmup_epochs,
        lr=learner.lr(),
        level=LEVEL,
        lipschitz_radius=found.history.curvature[-1].radius if found.history.curvature else None,
        seconds=found.seconds,
        threads=torch.get_num_threads(),
        device=str(learner.device),
        **found.noise.mode,
    )
