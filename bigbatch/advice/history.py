"""Noise, strides and curvature over a training: measured here, or recorded by the probes of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem
from bigbatch.probes.measurement.record import Record
from bigbatch.probes.noise_scale import Interval
from bigbatch.run import Run


@dataclass(frozen=True)
class NoisePoint(Record):
    step: int
    epochs: float
    estimate: float | None
    interval: Interval | None
    batch: int
    micro_batch: int | None = None
    batches: int | None = None  # that were drawn for it; None for a point of a run's own probe


@dataclass(frozen=True)
class StridePoint(Record):
    step: int
    epochs: float
    lr: float
    stride: float
    normalised: float | None
    loss: float


@dataclass(frozen=True)
class CurvaturePoint(Record):
    step: int
    epochs: float
    lr: float
    finite: float
    radius: float


@dataclass(frozen=True)
class CurvaturePeak(Record):
    """Where L(x, g) was largest in one training."""

    run: str
    global_batch: int
    value: float
    step: int
    epochs: float


@dataclass
class History(Record):
    over_training: list[NoisePoint] = field(default_factory=list)
    strides: list[StridePoint] = field(default_factory=list)
    lipschitz: list[CurvaturePoint] = field(default_factory=list)
    lipschitz_peaks: list[CurvaturePeak] = field(default_factory=list)


def read_history(folder: Folder | None) -> History:
    """What the probes of a run have recorded; nothing for a recipe."""
    if folder is None:
        return History()
    history = History(lipschitz_peaks=find_peaks(_list_comparable_runs(folder)))
    for row in folder.metrics():
        step, epochs, lr = row["step"], row["epoch"], row.get("lr", 0.0)
        found = {name: value for name, value in row.items() if isinstance(value, dict) and "problem" not in value}
        if noise := found.get("noise_scale"):
            point = NoisePoint(step, epochs, noise["whole"], noise["interval"], row["global_batch"])
            history.over_training.append(point)
        if moved := found.get("stride"):
            strides = moved["stride"], moved["normalised"]
            history.strides.append(StridePoint(step, epochs, lr, *strides, row["train_loss"]))
        if curved := found.get("lipschitz"):
            history.lipschitz.append(CurvaturePoint(step, epochs, lr, curved["finite"], curved["radius"]))
    return history


def find_peaks(run_folders: Iterable[Path]) -> list[CurvaturePeak]:
    """Where L(x, g) peaked in each training with the probe `lipschitz`, by batch (LEGW paper, Fig. 3)."""
    peaks = []
    for path in run_folders:
        rows = [row for row in Folder(path).metrics() if "peak" in row.get("lipschitz", {})]
        if rows:  # a new training may have none
            peak = rows[-1]["lipschitz"]["peak"]
            value = peak.get("exact", peak.get("finite"))
            peaks.append(CurvaturePeak(str(path), rows[-1]["global_batch"], value, peak["step"], peak["epochs"]))
    return sorted(peaks, key=lambda peak: peak.global_batch)


def _list_comparable_runs(folder: Folder) -> list[Path]:
    """This run and those next to it with the same dataset and model, if they have the probe."""
    run = folder.run()
    if not _records_curvature(run):
        return []
    comparable = []
    for path in sorted(folder.path.resolve().parent.glob("*/run.json")):
        try:
            other = Folder(path.parent).run()
        except Problem:  # incomplete, or it names a part that is not installed here
            continue
        if _records_curvature(other) and (other.dataset, other.model) == (run.dataset, run.model):
            comparable.append(path.parent)
    return comparable


def _records_curvature(run: Run) -> bool:
    return any(config.name == "lipschitz" for config in run.probes)
