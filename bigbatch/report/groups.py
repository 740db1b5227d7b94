"""Runs that differ only in the seed, as one group with a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bigbatch.output.formatting import format_value
from bigbatch.report.records import RunRecord, differing_fields, flatten_fields
from bigbatch.run import fingerprint
from bigbatch.sweeps import format_mean

# they do not change what is learned, or are what is averaged over
_NOT_THE_SETTING = ("name", "seed", "micro_batch", "engine")
_LONGEST_LABEL = 60


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

    def format_states(self) -> str:
        """`2 done, 1 diverged`."""
        found = [record.state for record in self.records]
        return ", ".join(f"{found.count(state)} {state}" for state in dict.fromkeys(found))


def training_settings(record: RunRecord) -> dict[str, object]:
    """The fields of a run without its name, its seed and the way it is divided."""
    return {name: value for name, value in record.run.items() if name not in _NOT_THE_SETTING}


def group_by_setting(records: Sequence[RunRecord], labels: Mapping[Path, str] | None = None) -> list[RunGroup]:
    """Groups in the order of their first runs. `labels` names runs by their folders, as a sweep does."""
    together: dict[str, list[RunRecord]] = {}
    for record in records:
        given = (labels or {}).get(record.path)
        key = given or (fingerprint(training_settings(record)) if record.run else str(record.path))
        together.setdefault(key, []).append(record)
    fields = differing_fields([training_settings(alike[0]) for alike in together.values() if alike[0].run])
    named = [RunGroup(_label(alike[0], fields, labels or {}), tuple(alike)) for alike in together.values()]
    return _make_labels_unique(named)


def _label(record: RunRecord, fields: Sequence[str], labels: Mapping[Path, str]) -> str:
    if record.path in labels:
        return labels[record.path]
    own = flatten_fields(record.run)
    values = {name.removesuffix(".name"): own[name] for name in fields if own.get(name) is not None}
    text = " ".join(f"{name}={format_value(value)}" for name, value in values.items())
    if not fields:
        return str(record.run.get("name", record.name))
    return text if 0 < len(text) <= _LONGEST_LABEL else record.name


def _make_labels_unique(groups: list[RunGroup]) -> list[RunGroup]:
    """Two groups of one label get their folders' names added."""
    labels = [group.label for group in groups]
    return [
        group if labels.count(group.label) == 1 else RunGroup(f"{group.label} ({group.records[0].name})", group.records)
        for group in groups
    ]
