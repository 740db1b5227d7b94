"""What a person takes away: the kept samples as a filter's result, a table of all, or a copy of the kept data."""

from __future__ import annotations

import csv
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bigbatch import filters
from bigbatch.artifacts import atomic
from bigbatch.errors import Problem
from bigbatch.viewer import copies
from bigbatch.viewer.document import Document
from bigbatch.viewer.history import KEEP, NONE

Kind = Literal["kept", "csv", "copy"]
_KEEP_OF = {"keep": True, "drop": False, "reset": None}
_one_at_a_time = threading.Lock()


def export(document: Document, kind: Kind) -> list[str]:
    """The names of what was written into the document's export folder; earlier exports stay."""
    make = {"kept": _kept, "csv": _table, "copy": _copy}[kind]
    with _one_at_a_time:
        paths = make(document)
    document.exported |= {path.name: path for path in paths}
    return [path.name for path in paths]


def _kept(document: Document) -> list[Path]:
    """A result like the source, decided again by the settings of now: `rebuild` comes to the same mask."""
    now = document.now()
    document.points.refuse_too_many_pairs(now.settings.by_number())
    target = _free_name(document, ".npz", ".json")
    overrides = [
        {
            "at": entry.at,
            "samples": entry.samples.tolist(),
            "keep": _KEEP_OF[entry.action],
            "reason": entry.reason,
            **({"undone": True} if entry.undone else {}),
        }
        for entry in now.entries
    ]
    settings = now.settings.as_options(document.classes)
    filters.save(target, filters.decide_again(document.saved, overrides, **settings))
    return [target, target.with_suffix(".json")]


def _table(document: Document) -> list[Path]:
    target = _free_name(document, ".csv")
    with atomic.replace_file(target) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        columns = ["sample", "file", "class", "kept", "override", "eps_star", "prediction", "confidence", "loss"]
        writer.writerow(columns)
        writer.writerows(_rows(document))
    return [target]


def _rows(document: Document) -> Iterator[list[Any]]:
    """Empty where nothing is known."""
    now = document.now()
    mask, eps_star = document.mask(now), document.points.eps_star(now.settings.min_samples)
    known = document.saved.arrays
    paths = copies.paths_of(document.dataset)
    for sample in range(len(document)):
        override = now.overrides[sample]
        prediction = int(known["prediction"][sample]) if "prediction" in known else -1
        yield [
            sample,
            paths[sample] if paths is not None else "",
            document.classes[document.points.labels[sample]],
            int(mask[sample]),
            "" if override == NONE else "keep" if override == KEEP else "drop",
            _finite(eps_star[sample]),
            document.classes[prediction] if prediction >= 0 else "",
            *(_finite(known[name][sample]) if name in known else "" for name in ("confidence", "loss")),
        ]


def _finite(value: Any) -> Any:
    return value.item() if np.isfinite(value) else ""


def _copy(document: Document) -> list[Path]:
    if document.dataset is None:
        raise Problem(f"a copy needs the data, which is not here: {document.notes[0]}")
    return [copies.copy(document.dataset, document.path, document.mask(), _base(document, "-copy"))]


def _base(document: Document, ending: str) -> Path:
    return document.export_folder / f"{document.path.stem}{ending}"


def _free_name(document: Document, *suffixes: str) -> Path:
    """kept-1, kept-2 ...: a run that was trained on an export finds it as it was."""
    number = 1
    while any(_base(document, f"-{number}{suffix}").exists() for suffix in suffixes):
        number += 1
    return _base(document, f"-{number}{suffixes[0]}")
