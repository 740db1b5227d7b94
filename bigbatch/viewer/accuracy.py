"""The accuracy of runs that were trained on the filter, on all samples, and on random controls."""

from __future__ import annotations

import glob
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from bigbatch import batch_sizes, parts
from bigbatch.datasets import sha256
from bigbatch.errors import Problem
from bigbatch.filters import load
from bigbatch.output.formatting import flatten_fields
from bigbatch.sweeps import confidence_interval
from bigbatch.viewer.document import FilterDocument

# runs that differ only in these belong to one recipe
_NOT_THE_RECIPE = ("name", "seed", "filter", "global_batch", "micro_batch", "engine", "probes")

THIS_FILTER = "this filter"
Options = dict[str, Any]


@dataclass(frozen=True)
class AccuracyPoint:
    """Mean and confidence interval over the runs at one global batch; diverged runs are counted apart."""

    global_batch: int
    mean: float | None
    low: float | None
    high: float | None
    n: int
    diverged: int


@dataclass(frozen=True)
class AccuracySeries:
    """Accuracy against the global batch."""

    name: str
    points: list[AccuracyPoint]


class FinishedRun(NamedTuple):
    """A run as its folder describes it."""

    options: Options
    global_batch: int  # a batch that changes over time counts as its largest
    accuracy: float | None  # None where it diverged


class FilterFile(NamedTuple):
    """What identifies a filter's result."""

    mask_hash: str
    dataset_hash: str
    filter_options: Options


def accuracy_series(document: FilterDocument, runs_dir: Path) -> list[AccuracySeries]:
    """Return the series of the filter, and of each control of a recipe that was trained on the filter.

    Only finished runs on the document's dataset count.
    """
    recipes: dict[str, dict[str, dict[int, list[float | None]]]] = defaultdict(lambda: defaultdict(dict))
    names_by_mask = _names_by_mask(document)
    for run in _finished_runs(runs_dir):
        if run.options["dataset"] != document.manifest.dataset.config:
            continue
        name = _series_name(run.options.get("filter"), document, names_by_mask)
        if name is not None:
            fields = {key: value for key, value in run.options.items() if key not in _NOT_THE_RECIPE}
            if isinstance(run.options["global_batch"], dict):  # a batch that changes over time
                fields["global_batch"] = run.options["global_batch"]
            series = recipes[json.dumps(fields, sort_keys=True)]
            series[name].setdefault(run.global_batch, []).append(run.accuracy)
    with_filter = {
        recipe: series
        for recipe, series in sorted(recipes.items())
        if any(name.startswith(THIS_FILTER) for name in series)
    }
    return [
        AccuracySeries(name + suffix, [_accuracy_point(*item) for item in sorted(by_batch.items())])
        for series, suffix in zip(with_filter.values(), _recipe_suffixes(list(with_filter)), strict=True)
        for name, by_batch in sorted(series.items(), key=lambda item: (not item[0].startswith(THIS_FILTER), item[0]))
    ]


def _names_by_mask(document: FilterDocument) -> dict[str, str]:
    """Return the names of the source and of its exports by the hash of their masks."""
    names = {}
    for path in sorted(document.export_folder.glob(f"{glob.escape(document.path.stem)}-*.npz")):
        file = _read_filter_file(path)
        if file is not None and file.dataset_hash == document.saved.dataset_hash:
            names[file.mask_hash] = f"{THIS_FILTER}, {path.stem}"
    return names | {sha256(document.saved.mask): THIS_FILTER}


def _series_name(options: Options | None, document: FilterDocument, names_by_mask: dict[str, str]) -> str | None:
    """Return the name of a run's series by its filter; None for a filter without relation to the document."""
    if options is None or options["name"] == "full":
        return "full"
    if options == document.manifest.filter and not document.manifest.overrides:
        return THIS_FILTER
    if options["name"] != "kept":
        return _control_name(options)
    mask_hash = options.get("mask_hash", "")
    if mask_hash in names_by_mask:
        return names_by_mask[mask_hash]
    file = _read_filter_file(Path(options["path"]))
    return _control_name(file.filter_options) if file is not None and file.mask_hash == mask_hash else None


def _control_name(options: Options) -> str | None:
    """Return the name of a random control; None for another filter."""
    if options.get("name") != "random":
        return None
    size = f"like {Path(options['like']).name}" if options.get("like") else f"{100 * options['drop']:g} % dropped"
    return f"random, {size}" + ("" if options.get("per_class", True) else ", over all classes")


def _read_filter_file(path: Path) -> FilterFile | None:
    """Return None for a file that is not a filter's result."""
    try:
        return _read_version(path, path.stat().st_mtime_ns)
    except (Problem, OSError):
        return None


@lru_cache(maxsize=256)
def _read_version(path: Path, modified_ns: int) -> FilterFile:
    """Read each version of a file once: many runs name the same file."""
    saved = load(path)
    return FilterFile(sha256(saved.mask), saved.dataset_hash, saved.manifest.filter if saved.manifest else {})


def _finished_runs(runs_dir: Path) -> Iterator[FinishedRun]:
    """Yield every finished run below a folder; runs that cannot be read are skipped."""
    for folder, subfolders, files in os.walk(runs_dir):
        if "run.json" not in files:
            subfolders.sort()
            continue
        subfolders.clear()
        try:
            options = json.loads(Path(folder, "run.json").read_text(encoding="utf-8"))["run"]
            summary = json.loads(Path(folder, "summary.json").read_text(encoding="utf-8"))
            diverged = summary["diverged_at_step"] is not None
            batch = batch_sizes.largest(parts.configure("batch_sizes", options["global_batch"]))
            run = FinishedRun(options, batch, None if diverged else float(summary["test_accuracy"]))
        except (OSError, ValueError, KeyError, TypeError, Problem):
            continue
        yield run


def _accuracy_point(global_batch: int, accuracies: list[float | None]) -> AccuracyPoint:
    values = [value for value in accuracies if value is not None]
    mean, low, high = confidence_interval(values) if values else (None, None, None)
    return AccuracyPoint(global_batch, mean, low, high, len(values), len(accuracies) - len(values))


def _recipe_suffixes(recipes: list[str]) -> list[str]:
    """Return ` (optimizer.lr=0.2)` for each recipe: the options that differ between several recipes."""
    flat = [flatten_fields(json.loads(recipe)) for recipe in recipes]
    names = sorted({name for one in flat for name in one if any(other.get(name) != one[name] for other in flat)})
    texts = [", ".join(f"{name}={one[name]}" for name in names if name in one) for one in flat]
    return [f" ({text})" if text else "" for text in texts]
