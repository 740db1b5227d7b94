"""Accuracy beside the filter: what networks learned from it, from everything, and from as much chosen at random."""

from __future__ import annotations

import glob
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from bigbatch import batch_sizes, parts
from bigbatch.datasets import sha256
from bigbatch.errors import Problem
from bigbatch.filters import load
from bigbatch.viewer.document import Document

# the same training may differ in these
_NOT_THE_RECIPE = ("name", "seed", "filter", "global_batch", "micro_batch", "engine", "probes")

THIS = "this filter"
Fields = dict[str, Any]


def series(document: Document, runs_dir: Path) -> list[dict[str, Any]]:
    """A curve over global batches for the filter, and for each control of a recipe that was trained on the filter.

    Only finished runs on this very dataset count; one that diverged has no accuracy and is counted beside.
    """
    curves: dict[str, dict[str, dict[Any, list[float | None]]]] = defaultdict(lambda: defaultdict(dict))
    masks = _own_masks(document)
    for run, batch, accuracy in _finished(runs_dir):
        if run["dataset"] != document.manifest["dataset"]["config"]:
            continue
        name = _series_name(run.get("filter"), document, masks)
        if name is not None:
            curves[_recipe(run)][name].setdefault(batch, []).append(accuracy)
    with_filter = {
        recipe: by_name for recipe, by_name in sorted(curves.items()) if any(name.startswith(THIS) for name in by_name)
    }
    suffixes = _differences(list(with_filter))
    return [
        {"name": name + suffix, "points": _points(by_batch)}
        for (_, by_name), suffix in zip(with_filter.items(), suffixes, strict=True)
        for name, by_batch in sorted(by_name.items(), key=lambda item: (not item[0].startswith(THIS), item[0]))
    ]


def _own_masks(document: Document) -> dict[str, str]:
    """What the source and its exports are called, by the hash of their masks."""
    masks = {}
    for path in sorted(document.export_folder.glob(f"{glob.escape(document.path.stem)}-*.npz")):
        made = _made(path)
        if made is not None and made.dataset_hash == document.saved.dataset_hash:
            masks[made.mask_hash] = f"{THIS}, {path.stem}"
    return masks | {sha256(document.saved.mask): THIS}


def _series_name(about: Fields | None, document: Document, masks: dict[str, str]) -> str | None:
    """None for a filter that has nothing to do with this one."""
    if about is None or about["name"] == "full":
        return "full"
    if about == document.manifest["filter"] and not document.manifest["overrides"]:
        return THIS
    if about["name"] == "kept":
        return masks.get(about.get("mask_hash", "")) or _random(_maker(about))
    return _random(about)


def _random(about: Fields | None) -> str | None:
    if about is None or about.get("name") != "random":
        return None
    size = f"like {Path(about['like']).name}" if about.get("like") else f"{100 * about['drop']:g} % dropped"
    return f"random, {size}" + ("" if about.get("per_class", True) else ", over all classes")


def _maker(about: Fields) -> Fields | None:
    """The filter that made the file a run was trained on, if the file is still the same."""
    made = _made(Path(about["path"]))
    return made.by if made is not None and made.mask_hash == about.get("mask_hash") else None


class Made(NamedTuple):
    """Of a filter's result what it takes to tell whose it is."""

    mask_hash: str
    dataset_hash: str
    by: Fields


def _made(path: Path) -> Made | None:
    """None for what is no filter's result."""
    try:
        return _read(path, path.stat().st_mtime_ns)
    except (Problem, OSError):
        return None


@lru_cache(maxsize=256)
def _read(path: Path, modified_ns: int) -> Made:
    """Once for each state of a file: many runs name the same."""
    saved = load(path)
    return Made(sha256(saved.mask), saved.dataset_hash, saved.manifest.get("filter", {}))


def _finished(runs_dir: Path) -> Iterator[tuple[Fields, int, float | None]]:
    """Run, batch and test accuracy (None: diverged) of every folder below; what cannot be read is left out."""
    for folder, inner, files in os.walk(runs_dir):
        if "run.json" not in files:
            inner.sort()
            continue
        inner.clear()
        try:
            run = json.loads(Path(folder, "run.json").read_text(encoding="utf-8"))["run"]
            summary = json.loads(Path(folder, "summary.json").read_text(encoding="utf-8"))
            diverged = summary["diverged_at_step"] is not None
            found = run, _batch(run), None if diverged else float(summary["test_accuracy"])
        except (OSError, ValueError, KeyError, TypeError, Problem):
            continue
        yield found


def _recipe(run: Fields) -> str:
    """All that has to be equal. A batch that changes over time is part of it, a constant one is the axis."""
    fields = {key: value for key, value in run.items() if key not in _NOT_THE_RECIPE}
    if isinstance(run["global_batch"], dict):
        fields["global_batch"] = run["global_batch"]
    return json.dumps(fields, sort_keys=True)


def _batch(run: Fields) -> int:
    """A batch that changes over time counts by its largest."""
    return batch_sizes.largest(parts.configure("batch_sizes", run["global_batch"]))


def _points(by_batch: dict[int, list[float | None]]) -> list[dict[str, Any]]:
    from bigbatch.sweeps import confidence_interval

    points = []
    for batch, accuracies in sorted(by_batch.items()):
        values = [value for value in accuracies if value is not None]
        mean, low, high = confidence_interval(values) if values else (None, None, None)
        point = {"global_batch": batch, "mean": mean, "low": low, "high": high, "n": len(values)}
        points.append(point | {"diverged": len(accuracies) - len(values)})
    return points


def _differences(recipes: list[str]) -> list[str]:
    """` (lr=0.2)`: what tells recipes apart, where there are several."""
    flat = [dict(_flattened(json.loads(recipe))) for recipe in recipes]
    names = sorted({name for one in flat for name in one if any(other.get(name) != one[name] for other in flat)})
    texts = [", ".join(f"{name}={one[name]}" for name in names if name in one) for one in flat]
    return [f" ({text})" if text else "" for text in texts]


def _flattened(fields: Fields, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
