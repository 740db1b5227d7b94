"""What became of each point, read from its run's folder: the files are the truth, the table is made of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem
from bigbatch.sweeps.asked import Point, brief, label

Status = Literal["missing", "running", "stopped", "pruned", "done", "diverged", "failed", "damaged"]
FINISHED = ("done", "diverged")
MEASURES = {"test_accuracy": True, "test_perplexity": False}  # and whether more is better


@dataclass(frozen=True)
class Row:
    """One run of a sweep."""

    variant: str
    settings: Mapping[str, Any]
    seed: int
    global_batch: int | None  # None where run.json cannot be read
    lr: float | None  # optimizer.lr, before a schedule scales it
    status: Status
    measure: str  # "test_accuracy" or "test_perplexity"
    metric: float | None  # None unless the run is done
    folder: Path
    all_else: str  # fingerprint of the run without seed and batch: what a curve over batches has in common
    summary: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None  # why it failed, or what is damaged

    @property
    def label(self) -> str:
        return label(self.variant, self.settings)


def of_point(point: Point, runs: Path, status: Status | None = None, problem: str | None = None) -> Row:
    """The row of a point. `status` is what the sweep knows and the run's folder does not."""
    folder = Folder(runs / point.folder_name)
    measure = expected_measure(point)
    summary: Mapping[str, Any] = {}
    try:
        written = folder.status
        if written in FINISHED:
            status, problem, summary = written, None, folder.summary()
            measure = next((name for name in MEASURES if name in summary), measure)
            if written == "done" and not _is_number(summary.get(measure)):
                raise Problem(f"{folder.path / 'summary.json'} has no {measure}: restore it from a copy")
    except Problem as damage:
        written, status, problem = None, "damaged", f"{damage}, or remove the run's folder and go on with the sweep"
    return Row(
        point.variant,
        point.settings,
        point.seed,
        point.global_batch,
        point.lr,
        status or written or "missing",
        measure,
        summary[measure] if written == "done" else None,
        folder.path,
        point.all_else,
        summary,
        problem,
    )


def of_damaged(folder: Path, problem: str) -> Row:
    """The row of a run whose run.json cannot be read, so that nobody knows what was set in it."""
    return Row(folder.name, {}, 0, None, None, "damaged", "", None, folder, "", problem=problem)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def expected_measure(point: Point) -> str:
    return "test_perplexity" if point.run.dataset.name == "ptb" else "test_accuracy"


def as_csv(rows: Iterable[Row], base: Path) -> str:
    """table.csv: a line a run, with a column for each field that the sweep sets."""
    rows = list(rows)
    fields = list(dict.fromkeys(name for row in rows for name in row.settings))
    measures = ("test_accuracy", "test_perplexity", "test_loss", "train_loss")
    known = ("diverged_at_step", "epochs", "steps", "seconds", "samples_per_second", "ranks")
    numbers = [name for name in measures if any(name in row.summary for row in rows)] + list(known)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    batch_and_lr = [name for name in ("global_batch", "optimizer.lr") if name not in fields]
    table.writerow(["variant", *fields, *batch_and_lr, "seed", "status", *numbers, "folder", "problem"])
    for row in rows:
        always = {"global_batch": row.global_batch, "optimizer.lr": row.lr}
        table.writerow(
            [
                row.variant,
                *(_in_full(row.settings.get(name, "")) for name in fields),
                *(always[name] for name in batch_and_lr),
                row.seed,
                row.status,
                *("" if row.summary.get(name) is None else row.summary[name] for name in numbers),
                row.folder.relative_to(base),
                row.problem or "",
            ]
        )
    return text.getvalue()


def _in_full(value: Any) -> Any:
    """Every digit, so that a run can be repeated from the table."""
    return value if isinstance(value, float) else brief(value)
