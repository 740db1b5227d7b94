"""What the page exports: the kept samples as a filter's result, a table of all samples, or a copy of the kept data."""

from __future__ import annotations

import csv
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bigbatch import filters
from bigbatch.artifacts import atomic
from bigbatch.datasets import Dataset
from bigbatch.datasets.arrays import ArraySamples, open_npz
from bigbatch.datasets.imagefolder import FolderImages
from bigbatch.datasets.reading.images import InMemoryImages
from bigbatch.datasets.reading.lazy_images import LazyImages
from bigbatch.errors import Problem
from bigbatch.viewer.document import FilterDocument
from bigbatch.viewer.images import load_image
from bigbatch.viewer.overrides import KEEP, NO_OVERRIDE

ExportKind = Literal["kept", "csv", "copy"]
_COLUMNS = ["sample", "file", "class", "kept", "override", "eps_star", "prediction", "confidence", "loss"]
_TRAIN = "train"
_export_lock = threading.Lock()


def write_export_files(document: FilterDocument, kind: ExportKind) -> list[str]:
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


def _new_path(document: FilterDocument, *suffixes: str) -> Path:
    """Return kept-1, kept-2 ...: an export that a run was trained on is never overwritten."""
    number = 1
    base = document.export_folder / document.path.stem
    while any(base.with_name(f"{base.name}-{number}{suffix}").exists() for suffix in suffixes):
        number += 1
    return base.with_name(f"{base.name}-{number}{suffixes[0]}")


def _table_rows(document: FilterDocument) -> Iterator[list[object]]:
    """Yield one row per sample; a cell is empty where nothing is known."""
    snapshot = document.snapshot()
    mask, eps_star = document.kept_mask(snapshot), document.points.eps_star(snapshot.settings.min_samples)
    arrays = document.saved.arrays
    samples = document.dataset.train if document.dataset is not None else None
    for sample in range(len(document)):
        override = snapshot.override_values[sample]
        prediction = int(arrays["prediction"][sample]) if "prediction" in arrays else -1
        yield [
            sample,
            samples.paths[sample] if isinstance(samples, FolderImages) else "",
            document.classes[document.points.labels[sample]],
            int(mask[sample]),
            "" if override == NO_OVERRIDE else "keep" if override == KEEP else "drop",
            _finite_or_empty(eps_star[sample]),
            document.classes[prediction] if prediction >= 0 else "",
            *(_finite_or_empty(arrays[name][sample]) if name in arrays else "" for name in ("confidence", "loss")),
        ]


def _finite_or_empty(value: np.floating) -> float | str:
    return value.item() if np.isfinite(value) else ""


# -- a copy of the kept samples: a folder of image files, or one .npz. The originals are not changed


def _write_copy(document: FilterDocument) -> list[Path]:
    """Copy to a path that must not exist."""
    if document.dataset is None:
        raise Problem(f"a copy needs the dataset, which was not found: {document.notes[0]}")
    samples, mask = document.dataset.train, document.kept_mask()
    suffix = "" if isinstance(samples, LazyImages) else ".npz"
    target = document.export_folder / f"{document.path.stem}-copy{suffix}"
    if target.exists():
        raise Problem(f"{target} exists already: move or remove it, or choose another folder with --out")
    arrays: dict[str, NDArray[Any]]
    if isinstance(samples, LazyImages):
        _copy_images(document.dataset, samples, np.flatnonzero(mask).tolist(), target)
        return [target]
    if isinstance(samples, ArraySamples):  # every array with one row per sample, and the other arrays unchanged
        arrays = open_npz(document.path)
        arrays = {name: array[mask] if array.shape[:1] == mask.shape else array for name, array in arrays.items()}
    elif isinstance(samples, InMemoryImages):
        images, labels = samples.images.numpy().transpose(0, 2, 3, 1)[mask], samples.labels.numpy()[mask]
        arrays = {"images": images, "labels": labels, "classes": np.array(document.dataset.classes)}
    else:
        raise Problem("samples of this dataset are not stored images, so they cannot be copied: export 'kept' instead")
    arrays["sample"] = np.flatnonzero(mask)
    with atomic.replace_file(target) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    return [target]


def _copy_images(dataset: Dataset, samples: LazyImages, kept: list[int], target: Path) -> None:
    """Copy image files, or save images without files of their own under their sample numbers."""
    paths = samples.paths if isinstance(samples, FolderImages) else []
    # with one class alone the files have more folders in common than the one of all classes
    common = Path(os.path.commonpath([os.path.dirname(path) for path in paths])) if paths else Path(_TRAIN)
    train = next(parent for parent in (common, *common.parents) if parent.name == _TRAIN)
    try:
        with atomic.replace_folder(target, per_process=True) as temporary:
            needed_bytes = sum(os.stat(paths[sample]).st_size for sample in kept) if paths else 0
            free_bytes = shutil.disk_usage(temporary).free
            if needed_bytes > free_bytes:
                raise Problem(
                    f"the copy needs {needed_bytes / 2**20:,.0f} MB and {target.parent} has "
                    f"{free_bytes / 2**20:,.0f} MB: free space there, or choose another folder with --out"
                )
            for sample in kept:
                # by class number: a class may be called '..' or contain a slash
                numbered = f"{int(samples.labels[sample]):05d}/{sample:08d}.png"
                copy = temporary / _TRAIN / (Path(paths[sample]).relative_to(train) if paths else numbered)
                copy.parent.mkdir(parents=True, exist_ok=True)
                if paths:
                    shutil.copy2(paths[sample], copy)
                else:
                    load_image(dataset, sample).save(copy)
    except OSError as error:
        raise Problem(f"{target} could not be written ({error.strerror}): free space, or use another --out") from error
