"""The result of each run of a sweep, read from its folder: the files are the truth, the table is made from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem
from bigbatch.output.formatting import format_csv, format_value
from bigbatch.run import Run
from bigbatch.sweeps.config import SearchConfig, Settings, SweepPoint, format_settings
from bigbatch.sweeps.queue import read_failure

Status = Literal["missing", "running", "stopped", "pruned", "done", "diverged", "failed", "damaged"]
FINISHED = ("done", "diverged")
HIGHER_IS_BETTER = {"test_accuracy": True, "test_perplexity": False}
_TABLE_METRICS = ("test_accuracy", "test_perplexity", "test_loss", "train_loss")
_TABLE_FACTS = ("diverged_at_step", "epochs", "steps", "seconds", "samples_per_second", "ranks")


@dataclass(frozen=True)
class RunResult:
    """One run of a sweep: its settings, its status and its final metric."""

    variant: str
    settings: Settings
    seed: int
    global_batch: int | None  # None if run.json cannot be read
    lr: float | None  # optimizer.lr, before a schedule scales it
    status: Status
    metric: str  # "test_accuracy" or "test_perplexity"
    value: float | None  # None unless the run is done
    folder: Path
    hash_without_batch: str
    summary: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None  # why it failed, or what is damaged

    @property
    def label(self) -> str:
        return format_settings(self.variant, self.settings)

    def has_crossing(self, target: str) -> bool:
        """Whether it is known where the run reached a target, or that it did not."""
        return self.status == "diverged" or (self.status == "done" and target in (self.summary.get("crossings") or {}))

    def samples_to(self, target: str) -> float | None:
        """Return the samples until the run reached a target; None if it never did, or diverged later."""
        crossing = (self.summary.get("crossings") or {}).get(target) if self.status == "done" else None
        return crossing["samples"] if crossing else None


def read_result(point: SweepPoint, runs: Path) -> RunResult:
    """Read the result of a point from the folder of its run."""
    folder = Folder(runs / point.folder_name)
    metric, problem = metric_of(point), None
    summary: Mapping[str, Any] = {}
    try:
        status: Status = folder.status or "missing"
        if status in FINISHED:
            summary = folder.summary()
            metric = next((name for name in HIGHER_IS_BETTER if name in summary), metric)
            value = summary.get(metric)
            if status == "done" and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise Problem(f"{folder.path / 'summary.json'} has no {metric}: restore it from a copy")
    except Problem as damage:
        status, problem = "damaged", f"{damage}, or remove the run's folder and resume the sweep"
    return RunResult(
        variant=point.variant,
        settings=point.settings,
        seed=point.seed,
        global_batch=point.global_batch,
        lr=point.lr,
        status=status,
        metric=metric,
        value=summary[metric] if status == "done" else None,
        folder=folder.path,
        hash_without_batch=point.hash_without_batch,
        summary=summary,
        problem=problem,
    )


def metric_of(point: SweepPoint) -> str:
    """Return the metric by which runs on the point's dataset are compared."""
    return "test_perplexity" if point.run.dataset.name == "ptb" else "test_accuracy"


def read_unfinished(point: SweepPoint, sweep_folder: Path, claimed: bool) -> RunResult:
    """Read the result of a point that may be running (`claimed` by a worker), pruned or failed."""
    work = sweep_folder / "work"
    result = read_result(point, sweep_folder / "runs")
    if result.status in (*FINISHED, "damaged"):
        return result
    if claimed:
        return replace(result, status="running")
    if (work / f"{point.hash}.pruned").exists():
        return replace(result, status="pruned")
    if failure := read_failure(work, point.hash):
        return replace(result, status="failed", problem=failure[0])
    if result.status == "running" and Folder(result.folder).lock_holder_pid() is None:
        return replace(result, status="stopped")  # its process was killed and could not record it
    return result


def read_trials(points: Sequence[SweepPoint], search: SearchConfig, sweep_folder: Path) -> list[RunResult]:
    """Read every trial that a search has begun, setting by setting, from the folders of its runs."""
    runs: list[Run] = []
    damaged: list[RunResult] = []
    for path in sorted(path for path in (sweep_folder / "runs").glob("*") if Folder(path).exists()):
        try:
            runs.append(Folder(path).run())
        except Problem as problem:
            damaged.append(RunResult(path.name, {}, 0, None, None, "damaged", "", None, path, "", problem=str(problem)))
    found = []
    for base in points:
        for run in runs:
            if _without_search(run, search) == _without_search(base.run, search):
                fields = run.model_dump(mode="json")
                chosen = {scope.field: _field_value(fields, scope.field) for scope in search.ranges}
                found.append(read_unfinished(base.with_run(run, **chosen), sweep_folder, claimed=False))
    return found + damaged


def _without_search(run: Run, search: SearchConfig) -> dict[str, Any]:
    """Return a run's fields without those that a search changes: the ranges, and the samples that it is tested on."""
    fields = run.model_dump(mode="json")
    dataset = fields["dataset"]
    fields["dataset"] = {name: value for name, value in dataset.get("of", dataset).items() if name != "evaluate"}
    for scope in search.ranges:
        *parents, last = scope.field.split(".")
        owner: Any = fields
        for parent in parents:
            owner = owner.get(parent) if isinstance(owner, dict) else None
        if isinstance(owner, dict):
            owner.pop(last, None)
    return fields


def _field_value(fields: dict[str, Any], path: str) -> Any:
    value: Any = fields
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value["name"] if isinstance(value, dict) and "name" in value else value


def format_table(results: Iterable[RunResult], sweep_folder: Path, targets: Iterable[str] = ()) -> str:
    """Return table.csv: one line per run, with a column for each field that the sweep sets and for each target."""
    results = list(results)
    fields = list(dict.fromkeys(name for result in results for name in result.settings))
    metrics = [name for name in _TABLE_METRICS if any(name in result.summary for result in results)]
    rows = []
    for result in results:
        # floats with every digit, so that a run can be repeated from the table
        values = {name: result.settings.get(name, "") for name in fields}
        cells = {name: value if isinstance(value, float) else format_value(value) for name, value in values.items()}
        row: dict[str, object] = {"variant": result.variant, **cells}
        row.setdefault("global_batch", result.global_batch)
        row.setdefault("optimizer.lr", result.lr)
        row |= {"seed": result.seed, "status": result.status}
        row |= {name: result.summary.get(name) for name in (*metrics, *_TABLE_FACTS)}
        row |= {f"samples to {target}": result.samples_to(target) for target in targets}
        rows.append(row | {"folder": result.folder.relative_to(sweep_folder), "problem": result.problem or ""})
    return format_csv(rows)
