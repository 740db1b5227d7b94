"""What each task left behind: one small JSON file, which is kept and shared where runs and checkpoints are not."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from bigbatch.artifacts import atomic
from bigbatch.artifacts.metrics import MetricsRow, dump_json
from bigbatch.errors import Problem
from bigbatch.run import Run
from bigbatch.sweeps import format_mean

Scale = Literal["smoke", "laptop", "paper"]
SCALES: tuple[Scale, ...] = ("smoke", "laptop", "paper")


class Missing(Exception):
    """A task that a figure asks for has no record yet."""


@dataclass(frozen=True)
class Record:
    """The result of one task."""

    kind: Literal["Run", "Probing", "Filtering", "FilteredTraining"]
    run: dict[str, Any]  # as run.json has it
    result: dict[str, Any]  # the summary of a training, what a probe measured, what a filter counted
    rows: list[MetricsRow] = field(default_factory=list)  # evaluations and probes of a training
    seconds: float = 0.0
    about: dict[str, Any] = field(default_factory=dict)  # commit, packages, hardware

    @cached_property
    def described_run(self) -> Run:
        return Run.from_fields(self.run)

    @property
    def diverged(self) -> bool:
        return self.result.get("diverged_at_step") is not None

    @property
    def metric(self) -> str:
        return "test_perplexity" if "test_perplexity" in self.result else "test_accuracy"

    @classmethod
    def read(cls, path: Path) -> Record | None:
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{name: stored[name] for name in (part.name for part in fields(cls))})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise Problem(f"{path} is not a readable record ({error}): restore it, or remove it") from error

    def write(self, path: Path) -> None:
        atomic.write_text(path, dump_json(asdict(self), indent=1) + "\n")


@dataclass(frozen=True)
class Results:
    """The records behind one figure, by case, and the scale that they were made at."""

    scale: Scale
    records: Mapping[Any, Sequence[Record]]  # without the tasks that are not done
    files: Mapping[Any, Path] = field(default_factory=dict)  # kept.npz of the cases that are filters

    def of(self, case: Any) -> Sequence[Record]:
        """Return the records of a case, one per seed; `Missing` if there is none."""
        found = self.records.get(case)
        if not found:
            raise Missing(str(case))
        return found

    def run(self, case: Any) -> Run:
        return self.of(case)[0].described_run

    def batch(self, case: Any) -> int:
        """Return the global batch that a case was run at, the last one if it changes."""
        fields = self.of(case)[0].run["global_batch"]
        return int(fields if isinstance(fields, int) else fields["stages"][-1]["global_batch"])

    def values(self, case: Any, name: str | None = None) -> list[float]:
        """Return the final accuracy or perplexity, or another number of the result, of runs that did not diverge."""
        done = [record for record in self.of(case) if not record.diverged]
        return [float(record.result[name or record.metric]) for record in done]

    def diverged(self, case: Any) -> int:
        return sum(record.diverged for record in self.of(case))

    def mean(self, case: Any, name: str | None = None) -> float:
        """Return the mean over seeds. One that diverged counts as an accuracy of 0, an infinite loss or perplexity."""
        worst = 0.0 if (name or self.of(case)[0].metric) == "test_accuracy" else math.inf
        values = self.values(case, name)
        return statistics.fmean([*values, *[worst] * self.diverged(case)])

    def describe(self, case: Any) -> str:
        """`98.65 % ± 0.12 (n=3)`, or what is missing."""
        try:
            diverged, values = self.diverged(case), self.values(case)
        except Missing:
            return "not run"
        note = f", {diverged} diverged" if diverged else ""
        return f"{format_mean(values, self.of(case)[0].metric)} (n={len(values)}{note})" if values else "diverged"

    def curve(self, case: Any, name: str) -> list[tuple[list[float], list[float]]]:
        """Return epochs and values of a measure of the evaluations, for each seed."""
        kept = [[row for row in record.rows if row.get(name) is not None] for record in self.of(case)]
        return [([row["epoch"] for row in rows], [row[name] for row in rows]) for rows in kept]

    def probed(self, case: Any, name: str) -> list[list[MetricsRow]]:
        """Return what a probe measured during the training, for each seed."""
        return [[row[name] for row in record.rows if name in row] for record in self.of(case)]

    @property
    def setting(self) -> str:
        """`cnn on digits, 10 epochs`: what was run, in place of what the paper ran."""
        runs = [record.run for found in self.records.values() for record in found]
        models = sorted({_describe_model(run["model"]) for run in runs})
        data = sorted({_describe_data(run) for run in runs})
        lengths = sorted({f"{run['epochs']:g} epochs" if run["epochs"] else f"{run['steps']} steps" for run in runs})
        trained = any(record.kind in ("Run", "FilteredTraining") for found in self.records.values() for record in found)
        length = f", {' / '.join(lengths)}" if trained else ", the first step"
        return f"{' / '.join(models)} on {' / '.join(data)}{length}" if runs else ""

    @property
    def seeds(self) -> int:
        """The seeds of the case that has the most."""
        return max((len(found) for found in self.records.values()), default=0)


def _describe_model(model: dict[str, Any]) -> str:
    depth = f"-{model['depth']}" if "depth" in model else ""
    return f"{model['name']}{depth}{' with BatchNorm' if model.get('batch_norm') else ''}"


def _describe_data(run: dict[str, Any]) -> str:
    dropped = (run["filter"] or {}).get("drop")
    return f"{100 * (1 - dropped):.3g} % of {run['dataset']['name']}" if dropped else str(run["dataset"]["name"])
