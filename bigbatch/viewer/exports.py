"""What the page exports: the kept samples as a filter's result, a table of all samples, or a copy of the kept data."""

from __future__ import annotations

import csv
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from bigbatch import filters
from bigbatch.artifacts import atomic
from bigbatch.errors import Problem
from bigbatch.viewer.copies import copy_samples, file_paths
from bigbatch.viewer.document import FilterDocument
from bigbatch.viewer.overrides import KEEP, NO_OVERRIDE

ExportKind = Literal["kept", "csv", "copy"]
_COLUMNS = ["sample", "file", "class", "kept", "override", "eps_star", "prediction", "confidence", "loss"]
_export_lock = threading.Lock()


def export(document: FilterDocument, kind: ExportKind) -> list[str]:
    """Write into the document's export folder, beside earlier exports, and return the names of the files."""
    write = {"kept": _write_kept, "csv": _write_table, "copy": _write_copy}[kind]
    with _export_lock:
        paths = write(document)
    document.exported_files |= {path.name: path for path in paths}
    return [path.name for path in paths]


def _write_kept(document: FilterDocument) -> list[Path]:
    """Write a result like the source, decided by the present settings: `rebuild` gives the same mask."""
    snapshot = document.snapshot()
    document.points.check_pair_count(snapshot.settings.eps_by_class())
    target = _new_path(document, ".npz", ".json")
    overrides = [override.manifest_entry() for override in snapshot.overrides]
    options = snapshot.settings.to_options(document.classes)
    filters.save(target, filters.decide_again(document.saved, overrides, **options))
    return [target, target.with_suffix(".json")]


def _write_table(document: FilterDocument) -> list[Path]:
    target = _new_path(document, ".csv")
    with atomic.replace_file(target) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        writer.writerows(_table_rows(document))
    return [target]


def _table_rows(document: FilterDocument) -> Iterator[list[object]]:
    """Yield one row per sample; a cell is empty where nothing is known."""
    snapshot = document.snapshot()
    mask, eps_star = document.kept_mask(snapshot), document.points.eps_star(snapshot.settings.min_samples)
    arrays = document.saved.arrays
    paths = file_paths(document.dataset)
    for sample in range(len(document)):
        override = snapshot.override_values[sample]
        prediction = int(arrays["prediction"][sample]) if "prediction" in arrays else -1
        yield [
            sample,
            paths[sample] if paths is not None else "",
            document.classes[document.points.labels[sample]],
            int(mask[sample]),
            "" if override == NO_OVERRIDE else "keep" if override == KEEP else "drop",
            _finite_or_empty(eps_star[sample]),
            document.classes[prediction] if prediction >= 0 else "",
            *(_finite_or_empty(arrays[name][sample]) if name in arrays else "" for name in ("confidence", "loss")),
        ]


def _finite_or_empty(value: np.floating) -> float | str:
    return value.item() if np.isfinite(value) else ""


def _write_copy(document: FilterDocument) -> list[Path]:
    if document.dataset is None:
        raise Problem(f"a copy needs the dataset, which was not found: {document.notes[0]}")
    base = document.export_folder / f"{document.path.stem}-copy"
    return [copy_samples(document.dataset, document.path, document.kept_mask(), base)]


def _new_path(document: FilterDocument, *suffixes: str) -> Path:
    """Return kept-1, kept-2 ...: an export that a run was trained on is never overwritten."""
    number = 1
    base = document.export_folder / document.path.stem
    while any(base.with_name(f"{base.name}-{number}{suffix}").exists() for suffix in suffixes):
        number += 1
    return base.with_name(f"{base.name}-{number}{suffixes[0]}")
