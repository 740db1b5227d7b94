"""From what was measured to an answer: a batch, what it brings, how sure that is, and all that it rests on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigbatch.advice import learning_rates
from bigbatch.advice.decide import LEVEL, Grade, Known, graded, rounded
from bigbatch.advice.learner import Learner
from bigbatch.advice.measure import Measured
from bigbatch.advice.prior import preferred_batch
from bigbatch.advice.records import Records
from bigbatch.artifacts import atomic
from bigbatch.artifacts.metrics import dump_json

_CURVE_POINTS = 41


@dataclass(frozen=True)
class Advice:
    """Which global batch to use. `interval` is that of `optimum`, B*, of which `batch` is the power of two nearby."""

    of: str
    batch: int
    share_of_best: float  # of the goodput at B*, or at what is nearest to it of the batches timed and the data
    optimum: float | None  # None: without end
    interval: list[float | None]
    grade: Grade
    reasons: list[str]
    noise_scale: float  # the lower end where only that is known
    noise_scale_interval: list[float | None]
    only_lower_bound: bool
    memory_cap: int | None
    data_cap: int
    limited_by: str | None  # data, memory, or the smallest batch that was timed
    now: int
    schedule: dict[str, Any]
    expected: dict[str, Any]
    goodput: list[dict[str, Any]]
    step_times: dict[str, Any]
    noise: dict[str, Any]
    memory: dict[str, Any]
    over_training: list[dict[str, Any]]
    gradient: dict[str, Any]
    strides: list[dict[str, Any]]
    lipschitz: list[dict[str, Any]]
    lipschitz_peaks: list[dict[str, Any]]
    layers: list[dict[str, Any]]
    prior: dict[str, Any]
    verified: dict[str, Any] | None
    about: dict[str, Any]
    warnings: list[str]

    def to_json(self) -> str:
        """All of it, as the standard has JSON: what is not finite is null."""
        return dump_json(asdict(self), indent=2)

    def show(self) -> None:
        """On one screen of a terminal."""
        from bigbatch.advice.screen import show

        show(self)

    def write(self, folder: Path | str) -> Path:
        """advise.json and advise.html; gives the page's path."""
        from bigbatch.advice.web_page import page

        atomic.write_text(Path(folder) / "advise.json", self.to_json() + "\n")
        return page(self).write(Path(folder) / "advise.html")


def answered(learner: Learner, found: Measured, records: Records) -> Advice:
    """The answer, without verification."""
    fixed, per_sample = found.times.line
    fixed_draws, per_sample_draws = found.times.drawn_lines()
    known = Known(
        learner.now,
        found.noise.used,
        found.noise.only_lower_bound,
        fixed,
        per_sample,
        found.noise.draws,
        fixed_draws,
        per_sample_draws,
    )
    best = known.best()
    timed = found.times.batches[0], found.times.batches[-1]
    reachable = min(max(best, timed[0]), learner.data_cap)
    batch, limited_by = _limited(learner, known, found.memory.cap, timed[0])
    grade, reasons = graded(
        interval=known.best_interval(),
        only_lower_bound=known.only_lower_bound,
        misfit=found.times.misfit,
        spread=found.times.spread,
        steps=learner.steps,
        warmup_reached=learner.warm,
        best=min(best, learner.data_cap),
        timed=timed,
        drift=_drift(found),
    )
    total_epochs = None if learner.total_samples is None else learner.total_samples / learner.samples_per_epoch
    layers = {layer["name"]: layer for layer in found.layers}
    weight_decay = float(learner.optimizer.param_groups[0].get("weight_decay", 0.0))
    return Advice(
        of=learner.of,
        batch=batch,
        share_of_best=known.goodput(batch)["value"] / known.goodput(reachable)["value"],
        optimum=best if np.isfinite(best) else None,
        interval=known.best_interval(),
        grade=grade,
        reasons=reasons,
        noise_scale=known.noise_scale,
        noise_scale_interval=found.noise.interval,
        only_lower_bound=known.only_lower_bound,
        memory_cap=found.memory.cap,
        data_cap=learner.data_cap,
        limited_by=limited_by,
        now=learner.now,
        schedule=learning_rates.at(batch, learner.baseline, layers, weight_decay, total_epochs),
        expected=known.expected(batch, learner.total_samples),
        goodput=[known.goodput(size) for size in _curve(known, batch, timed)],
        step_times={
            "batches": list(found.times.batches),
            "seconds": found.times.least.tolist(),
            "rounds": len(found.times.rounds),
            "fixed_seconds": fixed,
            "seconds_per_sample": per_sample,
            "misfit": found.times.misfit,
            "spread": found.times.spread,
            "unit": "CPU seconds of one thread" if learner.counts_cpu_seconds else "seconds",
            "micro_batch": learner.micro_batch,
        },
        noise=found.noise.about(),
        memory={**asdict(found.memory), "limits": "the batch" if learner.in_one_piece else "a micro-batch"},
        over_training=[*records.noises, *found.over_training],
        gradient=found.gradient,
        strides=[*records.strides, *found.strides],
        lipschitz=[*records.curvatures, *found.lipschitz],
        lipschitz_peaks=records.peaks,
        layers=found.layers,
        prior=preferred_batch(),
        verified=None,
        about=_about(learner, found),
        warnings=[*found.warnings, *learner.notes, *_warnings(learner, known, batch, limited_by, timed[0])],
    )


def _drift(found: Measured) -> float | None:
    """The noise scale over what it was at the last look before; None where that look could not tell.

    A look that saw a lower end only is compared with the present upper end: 1 unless that is below it.
    """
    before = [row["interval"] + [row["estimate"]] for row in found.over_training[:-1] if row["interval"][0] is not None]
    if not before:
        return None
    low, high, estimate = before[-1]
    if high is not None and estimate is not None:
        return found.noise.used / estimate
    upper = found.noise.interval[1]
    return found.noise.used / low if upper is not None and upper < low else 1.0


def _limited(learner: Learner, known: Known, memory_cap: int | None, smallest_timed: int) -> tuple[int, str | None]:
    """The batch to advise, and what kept it from being the best. Micro-batches lift memory's limit; the data's stays.
    Below the smallest batch that was timed a line says nothing: there the fixed cost is all. A batch that is no
    faster than the present one is no advice."""
    best = known.best()
    cap, by = learner.data_cap, "data"
    if learner.in_one_piece and memory_cap is not None and memory_cap < cap:
        cap, by = memory_cap, "memory"
    limited_by = by if best > cap else "times" if best < smallest_timed else None
    batch = rounded(best, smallest_timed, cap)
    if learner.now <= cap and known.goodput(batch)["value"] <= 1:
        return learner.now, limited_by if limited_by != "times" else None
    return batch, limited_by


def _curve(known: Known, batch: int, timed: tuple[int, int]) -> list[int]:
    low = max(1, min(timed[0], batch, known.now) // 2)
    high = max(timed[1], 4 * batch, 4 * known.now, min(2 * known.noise_scale, 64 * batch))
    sizes = np.geomspace(low, high, _CURVE_POINTS).round().astype(int)
    return sorted({int(size) for size in sizes} | {batch, known.now})


def _warnings(learner: Learner, known: Known, batch: int, limited_by: str | None, smallest_timed: int) -> list[str]:
    found = []
    if known.only_lower_bound:
        found.append(
            "the noise scale is only a lower bound: batches of the data at hand could not tell the gradient from its "
            "noise, so that the best batch is at least the one given"
        )
    if known.seconds_per_sample == 0:
        found.append("step time does not grow with the batch in the range that was timed: time larger --batches")
    if limited_by == "times":
        found.append(
            f"the best batch seems to be below {smallest_timed}, the smallest that was timed: a step has little fixed "
            f"cost here, and batches save no time; --batches times smaller ones"
        )
    elif limited_by:
        found.append(f"the best batch is beyond what {limited_by} allows: {batch:,} is what fits of it")
    if learner.piece is not None and batch < learner.piece:
        found.append(
            f"BatchNorm normalises over {learner.piece} samples now; a batch of {batch:,} leaves it that many, "
            "which may cost accuracy"
        )
    return found


def _about(learner: Learner, found: Measured) -> dict[str, Any]:
    radii = [row["radius"] for row in found.lipschitz if row.get("radius") is not None]
    return {
        "seed": learner.subject.seed,
        "steps": learner.steps,
        "steps_trained_here": found.steps_trained,
        "epochs": learner.epochs,
        "warmup_epochs": learner.warmup_epochs,
        "lr": learner.lr(),
        "level": LEVEL,
        "lipschitz_radius": radii[-1] if radii else None,
        "seconds": found.seconds,
        "threads": _threads(),
        "device": str(learner.device),
        **found.noise.treatment,
    }


def _threads() -> int:
    import torch

    return torch.get_num_threads()
