"""Runs as their folders describe them, and groups of runs that differ only in the seed.

A damaged or unfinished run is a record too, not an error.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bigbatch import parts
from bigbatch.artifacts.folder import Folder
from bigbatch.artifacts.metrics import read_rows
from bigbatch.errors import Notice, Problem
from bigbatch.output.formatting import differing_fields, flatten_fields, format_value
from bigbatch.run import fingerprint
from bigbatch.sweeps import Sweep, format_mean

MEASURES = ("test_accuracy", "test_perplexity", "test_loss")  # the first that a run has is its result
# they do not change what is learned, or are what is averaged over
_NOT_THE_SETTING = ("name", "seed", "micro_batch", "engine")
_LONGEST_LABEL = 60


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
    def measures(self) -> dict[str, Any]:
        """The latest evaluation, and the summary of a finished run over it."""
        return next((row for row in reversed(self.rows) if row.get("test_loss") is not None), {}) | self.summary

    @property
    def result(self) -> tuple[str, float] | None:
        """The name and value of the final measure, or of the latest one if the run is unfinished."""
        found = self.measures
        return next(((name, found[name]) for name in MEASURES if isinstance(found.get(name), int | float)), None)

    @property
    def training_settings(self) -> dict[str, Any]:
        """The fields of the run without its name, its seed and the way it is divided."""
        return {name: value for name, value in self.run.items() if name not in _NOT_THE_SETTING}


def find_runs(paths: Iterable[Path]) -> tuple[list[Sweep], list[RunRecord]]:
    """The sweeps and the single runs behind folders; a folder of runs stands for all of them."""
    sweeps: list[Sweep] = []
    records: list[RunRecord] = []
    for path in {path.resolve(): path for path in paths}.values():  # named twice is there once
        if Folder(path).exists():
            records.append(read_run(path))
            continue
        runs = path
        if Sweep.is_sweep(path):
            try:
                sweep = Sweep.open(path)
                _ = sweep.points  # which may be of code that is not trusted
                sweeps.append(sweep)
                continue
            except Problem as problem:
                warnings.warn(Notice(f"{path} is reported as single runs, not as a sweep: {problem}"), stacklevel=2)
                runs = path / "runs"
        inside = sorted(child for child in runs.iterdir() if Folder(child).exists()) if runs.is_dir() else []
        if not inside:
            raise Problem(f"{path} is neither a run nor a sweep nor a folder of runs: give runs/<name>-<hash>")
        records += map(read_run, inside)
    return sweeps, list({record.path.resolve(): record for record in records}.values())


def find_run_folders(paths: Iterable[Path]) -> list[Path]:
    """All runs behind folders, those of sweeps too."""
    sweeps, records = find_runs(paths)
    # found on disk, because a search has no list of points
    in_sweeps = (path for sweep in sweeps for path in sorted((sweep.folder / "runs").glob("*")))
    return [*(record.path for record in records), *(path for path in in_sweeps if Folder(path).exists())]


def read_run(path: Path) -> RunRecord:
    """Return a record of all that is readable."""
    troubles: list[str] = []
    about = _read_json(path / "run.json", troubles)
    summary = _read_json(path / "summary.json", troubles) if (path / "summary.json").exists() else {}
    rows: list[dict[str, Any]] = []  # up to the first that cannot be read
    try:
        rows.extend(read_rows(path / "metrics.jsonl"))
    except (Problem, OSError, ValueError) as error:
        troubles.append(str(error))
    if about and not isinstance(about.get("run"), dict):
        troubles.append("run.json does not describe a run")
    elif about and fingerprint(about["run"]) != about.get("hash"):
        troubles.append("run.json was changed after the run started")
    try:
        state, note = _describe_state(Folder(path), summary)
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


@dataclass(frozen=True)
class RunGroup:
    """Runs with the same settings and different seeds."""

    label: str
    records: tuple[RunRecord, ...]

    @property
    def measure(self) -> str:
        return next((record.result[0] for record in self.records if record.result), "")

    @property
    def values(self) -> list[float]:
        """Results of the finished runs, one per seed: a repeated seed is not another sample."""
        by_seed: dict[object, float] = {}
        for record in self.records:
            if record.state == "done" and record.result:
                by_seed.setdefault(record.run.get("seed", record.path), record.result[1])
        return list(by_seed.values())

    def format_result(self) -> str:
        """`96.10 % ± 0.40 (n=3)`."""
        values = self.values
        return f"{format_mean(values, self.measure)} (n={len(values)})" if values else "-"


def count_states(records: Iterable[RunRecord]) -> str:
    """`2 done, 1 diverged`."""
    states = [record.state for record in records]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def group_by_setting(records: Iterable[RunRecord], given_labels: Mapping[Path, str]) -> list[RunGroup]:
    """Groups in the order of their first runs. Runs may be named by their folders, as a sweep does."""
    together: dict[str, list[RunRecord]] = {}
    for record in records:
        own_key = fingerprint(record.training_settings) if record.run else str(record.path)
        together.setdefault(given_labels.get(record.path) or own_key, []).append(record)
    firsts = [alike[0] for alike in together.values()]
    fields = differing_fields([record.training_settings for record in firsts if record.run])
    labels = [given_labels.get(record.path) or _label(record, fields) for record in firsts]
    return [
        RunGroup(label if labels.count(label) == 1 else f"{label} ({alike[0].name})", tuple(alike))
        for label, alike in zip(labels, together.values(), strict=True)
    ]


def _label(record: RunRecord, fields: Sequence[str]) -> str:
    """The values of the fields that differ, `global_batch=512`, or a name where they are none or too many."""
    if not fields:
        return str(record.run.get("name", record.name))
    own = flatten_fields(record.run)
    values = {name.removesuffix(".name"): own[name] for name in fields if own.get(name) is not None}
    text = " ".join(f"{name}={format_value(value)}" for name, value in values.items())
    return text if 0 < len(text) <= _LONGEST_LABEL else record.name
