"""What the probes of a run have written down on its way: noise, strides and curvature over training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem


@dataclass(frozen=True)
class Records:
    """Rows in the form that the short training writes its own, and where curvature peaked in the runs beside."""

    noises: list[dict[str, Any]] = field(default_factory=list)
    strides: list[dict[str, Any]] = field(default_factory=list)
    curvatures: list[dict[str, Any]] = field(default_factory=list)
    peaks: list[dict[str, Any]] = field(default_factory=list)


def records_of(folder: Folder | None) -> Records:
    """All that a run's folder has; nothing for a recipe."""
    if folder is None:
        return Records()
    found = Records(peaks=peaks_beside(folder))
    for row in folder.metrics():
        place = {"step": row["step"], "epochs": row["epoch"]}
        if _answered(row, "noise_scale"):
            about = row["noise_scale"]
            scale = {"estimate": about["whole"], "interval": about["interval"], "batch": row["global_batch"]}
            found.noises.append({**place, **scale})
        if _answered(row, "stride"):
            kept = {key: row["stride"][key] for key in ("stride", "normalised")}
            found.strides.append({**place, "lr": row["lr"], **kept, "loss": row["train_loss"]})
        if _answered(row, "lipschitz"):
            kept = {key: row["lipschitz"][key] for key in ("finite", "radius")}
            found.curvatures.append({**place, "lr": row["lr"], **kept})
    return found


def peaks_beside(folder: Folder) -> list[dict[str, Any]]:
    """Where L(x, g) peaked in this run and in those beside it that differ in nothing of dataset and model."""
    run = folder.run()
    if not _watched(run):
        return []
    alike = []
    for path in sorted(folder.path.resolve().parent.glob("*/run.json")):
        try:
            other = Folder(path.parent).run()
        except Problem:  # not a whole run, or a part of somebody else's: nothing to compare with
            continue
        if _watched(other) and (other.dataset, other.model) == (run.dataset, run.model):
            alike.append(path.parent)
    found = []
    for path in alike:
        try:
            found += peaks([path])
        except Problem:  # it has not come to its first row
            continue
    return sorted(found, key=lambda row: row["global_batch"])


def _answered(row: dict[str, Any], name: str) -> bool:
    return name in row and "problem" not in row[name]


def _watched(run: Any) -> bool:
    return any(config.name == "lipschitz" for config in run.probes)


def peaks(run_folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Where L(x, g) peaked in each of some trainings with the probe `lipschitz`, by batch (LEGW paper, Fig. 3)."""
    found = []
    for path in run_folders:
        folder = Folder(Path(path))
        rows = [row for row in folder.metrics() if "peak" in row.get("lipschitz", {})]
        if not rows:
            raise Problem(f"{path} has no rows of the probe 'lipschitz': train it with --set 'probes=[\"lipschitz\"]'")
        found.append({"run": str(path), "global_batch": rows[-1]["global_batch"], **rows[-1]["lipschitz"]["peak"]})
    return sorted(found, key=lambda row: row["global_batch"])
