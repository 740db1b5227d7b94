"""Runs as their folders describe them. A damaged or unfinished run is a record too, not an error."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bigbatch import parts
from bigbatch.artifacts.folder import Folder
from bigbatch.artifacts.metrics import read_rows
from bigbatch.errors import Problem
from bigbatch.run import fingerprint
from bigbatch.sweeps import Sweep

MEASURES = ("test_accuracy", "test_perplexity", "test_loss")  # the first that a run has is its result


@dataclass(frozen=True)
class RunRecord:
    """One run as it was found. `state` is its status, or what the files show instead of it."""

    path: Path
    state: str  # done diverged stopped failed running | killed, not begun, damaged
    note: str = ""  # what to know about a state that is not `done`
    about: dict[str, Any] = field(default_factory=dict)  # run.json
    rows: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def run(self) -> dict[str, Any]:
        found = self.about.get("run")
        return found if isinstance(found, dict) else {}

    @property
    def judged_on(self) -> str:
        """`test`, or what a search judges by in its place."""
        dataset = self.run.get("dataset")
        fields = dataset if isinstance(dataset, dict) else {}
        if parts.current_name("datasets", str(fields.get("name"))) == "held_out":
            return "held-out"
        return "validation" if fields.get("evaluate") == "valid" else "test"

    @property
    def last_test(self) -> dict[str, Any]:
        return next((row for row in reversed(self.rows) if row.get("test_loss") is not None), {})

    @property
    def result(self) -> tuple[str, float] | None:
        """The name and value of the final measure, or of the latest one if the run is unfinished."""
        found = self.last_test | self.summary
        return next(((name, found[name]) for name in MEASURES if isinstance(found.get(name), int | float)), None)


def find_runs(paths: Iterable[Path]) -> tuple[list[Sweep], list[RunRecord]]:
    """The sweeps and the single runs behind folders; a folder of runs stands for all of them."""
    sweeps: list[Sweep] = []
    records: list[RunRecord] = []
    for path in {path.resolve(): path for path in paths}.values():  # named twice is there once
        if Sweep.is_sweep(path):
            sweeps.append(Sweep.open(path))
        elif Folder(path).exists():
            records.append(read_run(path))
        else:
            inside = sorted(child for child in path.iterdir() if Folder(child).exists()) if path.is_dir() else []
            if not inside:
                raise Problem(f"{path} is neither a run nor a sweep nor a folder of runs: give runs/<name>-<hash>")
            records += map(read_run, inside)
    return sweeps, list({record.path.resolve(): record for record in records}.values())


def find_run_folders(paths: Iterable[Path]) -> list[Path]:
    """All runs behind folders, those of sweeps too."""
    sweeps, records = find_runs(paths)
    return [*(record.path for record in records), *(path for sweep in sweeps for path in sweep_run_folders(sweep))]


def sweep_run_folders(sweep: Sweep) -> list[Path]:
    """The folders of its runs, found on disk, because a search has no list of points."""
    return sorted(path for path in (sweep.folder / "runs").glob("*") if Folder(path).exists())


def read_run(path: Path) -> RunRecord:
    """Return a record of all that is readable."""
    folder = Folder(path)
    troubles: list[str] = []
    about = _read_json(path / "run.json", troubles)
    summary = _read_json(path / "summary.json", troubles) if (path / "summary.json").exists() else {}
    rows = _read_metrics(path / "metrics.jsonl", troubles)
    if about and not isinstance(about.get("run"), dict):
        troubles.append("run.json does not describe a run")
    elif about and fingerprint(about["run"]) != about.get("hash"):
        troubles.append("run.json was changed after the run started")
    try:
        state, note = _describe_state(folder, summary)
    except Problem as problem:
        troubles.append(str(problem))
    if troubles:
        return RunRecord(path, "damaged", "; ".join(troubles), about, rows, summary)
    return RunRecord(path, state, note, about, rows, summary)


def _describe_state(folder: Folder, summary: dict[str, Any]) -> tuple[str, str]:
    resume = f"'bigbatch resume {folder.path}' continues it"
    match folder.status:
        case None:
            return "not begun", resume
        case "running" if folder.lock_holder_pid() is None:
            return "killed", resume
        case "diverged":
            return "diverged", f"the loss was not finite at step {summary.get('diverged_at_step', '?')}"
        case "stopped" | "failed" as status:
            return status, resume
        case "done" if not summary:
            return "damaged", "it is done but has no summary.json"
        case status:
            return str(status), ""


def _read_json(path: Path, troubles: list[str]) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(value, dict):
            return value
        troubles.append(f"{path.name} is not a JSON object")
    except FileNotFoundError:
        troubles.append(f"it has no {path.name}")
    except (OSError, ValueError) as error:
        troubles.append(f"{path.name} cannot be read ({error})")
    return {}


def _read_metrics(path: Path, troubles: list[str]) -> list[dict[str, Any]]:
    """The rows up to the first that cannot be read."""
    rows: list[dict[str, Any]] = []
    try:
        for row in read_rows(path):
            if not isinstance(row, dict) or not isinstance(row.get("step"), int):
                troubles.append(f"row {len(rows) + 1} of {path.name} has no step")
                break
            rows.append(row)
    except (Problem, OSError, ValueError) as error:
        troubles.append(str(error))
    return rows


def flatten_fields(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"optimizer": {"lr": .1}}` becomes `{"optimizer.lr": .1}`; lists stay as they are."""
    found: dict[str, Any] = {}
    for key, value in fields.items():
        if isinstance(value, dict):
            found |= flatten_fields(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def differing_fields(runs: Iterable[dict[str, Any]]) -> list[str]:
    """The fields, flattened, that are not the same in all of them, in the order they come in."""
    flattened = [flatten_fields(run) for run in runs]
    names = dict.fromkeys(name for fields in flattened for name in fields)
    missing = object()
    return [
        name
        for name in names
        if any(fields.get(name, missing) != flattened[0].get(name, missing) for fields in flattened)
    ]
