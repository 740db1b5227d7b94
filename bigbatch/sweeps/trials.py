"""What a search has found, read from its runs' folders alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem
from bigbatch.run import Run
from bigbatch.sweeps import rows
from bigbatch.sweeps.asked import Point
from bigbatch.sweeps.queue import failure
from bigbatch.sweeps.ranges import Search
from bigbatch.sweeps.rows import MEASURES, Row

if TYPE_CHECKING:
    from bigbatch.sweeps.sweep import Sweep


def rows_of_trials(sweep: Sweep) -> list[Row]:
    """Every run that the search has begun, from its folder alone, setting by setting."""
    search = sweep.asked.search
    assert search
    runs: list[Run] = []
    damaged: list[Row] = []
    for path in sorted(path for path in (sweep.folder / "runs").glob("*") if Folder(path).exists()):
        try:
            runs.append(Folder(path).run())
        except Problem as problem:
            damaged.append(rows.of_damaged(path, str(problem)))
    found = []
    for base in sweep.points():
        for run in runs:
            if _is_trial_of(run, base.run, search):
                fields = run.model_dump(mode="json")
                chosen = {scope.field: _at(fields, scope.field) for scope in search.ranges}
                found.append(_row(Point(base.variant, {**base.settings, **chosen}, base.seed, run), sweep.folder))
    return found + damaged


def _row(point: Point, folder: Path) -> Row:
    if (folder / "work" / f"{point.hash}.pruned").exists():
        return rows.of_point(point, folder / "runs", "pruned")
    failed = failure(folder / "work", point.hash)
    if failed:
        return rows.of_point(point, folder / "runs", "failed", failed["problem"])
    row = rows.of_point(point, folder / "runs")
    trained = row.status != "running" or Folder(row.folder).lock_holder_pid() is not None
    return row if trained else rows.of_point(point, folder / "runs", "stopped")


def _is_trial_of(run: Run, base: Run, search: Search) -> bool:
    """Whether a run is a base with other values in the searched fields and, to be judged, another test set."""
    mine, its = base.model_dump(mode="json"), run.model_dump(mode="json")
    for fields in (mine, its):
        dataset = fields["dataset"]
        fields["dataset"] = {name: value for name, value in dataset.get("of", dataset).items() if name != "evaluate"}
        for scope in search.ranges:
            *parents, last = scope.field.split(".")
            owner: Any = fields
            for parent in parents:
                owner = owner.get(parent) if isinstance(owner, dict) else None
            if isinstance(owner, dict):
                owner.pop(last, None)
    return mine == its


def _at(fields: dict[str, Any], path: str) -> Any:
    value: Any = fields
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value["name"] if isinstance(value, dict) and "name" in value else value


def measured_as(measure: str) -> str:
    return "validation perplexity" if measure == "test_perplexity" else "held-out accuracy"


def sentences(found: list[Row], search: Search, points: list[Point]) -> Iterator[str]:
    """The best trial of each setting, whether it lies at an end of its range, and what it is worth."""
    fields = {scope.field for scope in search.ranges}
    for point in points:
        alike = [
            row
            for row in found
            if row.variant == point.variant
            and {name: value for name, value in row.settings.items() if name not in fields} == dict(point.settings)
        ]
        done = [row for row in alike if row.metric is not None]
        if not done:
            continue
        sign = -1 if MEASURES[done[0].measure] else 1
        best = min(done, key=lambda row: sign * (row.metric or 0.0))
        ends = [
            f"{s.field} at the {s.edge(best.settings[s.field])} end of its range"
            for s in search.ranges
            if s.edge(best.settings[s.field])
        ]
        warning = f"; {', '.join(ends)}: widen it" if ends else ""
        counts = f"{len(alike)} trials, {sum(row.status == 'pruned' for row in alike)} of them pruned"
        yield f"best of {counts}: {best.label}{warning}"
    judge = "validation text" if any(row.measure == "test_perplexity" for row in found) else "held-out training samples"
    yield f"measured on {judge}; the best of many flatters itself: train it on everything, with --seeds 3"
