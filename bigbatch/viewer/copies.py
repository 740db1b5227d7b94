"""A copy of the kept samples: a folder of image files, or one .npz. The originals are not changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bigbatch.artifacts import atomic
from bigbatch.datasets import Dataset
from bigbatch.datasets.arrays import ArraySamples, open_npz
from bigbatch.errors import Problem
from bigbatch.viewer.images import ArrayImages, DecodedImages, find_images

_TRAIN = "train"

Mask = NDArray[np.bool_]


@runtime_checkable
class FileSamples(Protocol):
    """Samples with one file each."""

    paths: list[str]


def file_paths(dataset: Dataset | None) -> list[str] | None:
    """Return the file of each training sample, or None where samples are not files."""
    return dataset.train.paths if dataset is not None and isinstance(dataset.train, FileSamples) else None


def copy_samples(dataset: Dataset, source: Path, mask: Mask, base: Path) -> Path:
    """Copy the kept samples to `base` with a fitting suffix, which must not exist; return its path."""
    images = find_images(dataset)
    paths = file_paths(dataset)
    if isinstance(dataset.train, ArraySamples):
        return _write_npz(base, lambda: _kept_rows(source, mask))
    if paths is not None:
        needed_bytes = sum(os.stat(paths[sample]).st_size for sample in np.flatnonzero(mask))
        return _write_folder(base, lambda folder: _copy_files(paths, mask, folder), needed_bytes)
    if isinstance(images, DecodedImages):
        return _write_folder(base, lambda folder: _save_images(images, dataset, mask, folder), 0)
    if isinstance(images, ArrayImages):
        return _write_npz(base, lambda: _kept_images(images, dataset, mask))
    raise Problem("samples of this dataset are not stored images, so they cannot be copied: export 'kept' instead")


# -- one file


def _write_npz(base: Path, make_arrays: Callable[[], dict[str, NDArray[Any]]]) -> Path:
    target = base.with_name(f"{base.name}.npz")
    _check_absent(target)
    with atomic.replace_file(target) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **make_arrays())
    return target


def _kept_rows(source: Path, mask: Mask) -> dict[str, NDArray[Any]]:
    """Return the kept rows of every array with one row per sample, and the other arrays unchanged."""
    arrays = open_npz(source)
    kept = {name: array[mask] if array.shape[:1] == mask.shape else array for name, array in arrays.items()}
    return kept | {"sample": np.flatnonzero(mask)}


def _kept_images(images: ArrayImages, dataset: Dataset, mask: Mask) -> dict[str, NDArray[Any]]:
    return {
        "images": images.images[mask],
        "labels": dataset.train.labels.numpy()[mask],
        "classes": np.array(dataset.classes),
        "sample": np.flatnonzero(mask),
    }


# -- a folder of files


def _write_folder(base: Path, fill: Callable[[Path], None], needed_bytes: int) -> Path:
    """Fill a folder under a temporary name, then rename it."""
    _check_absent(base)
    temporary = base.with_name(f".{base.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        free_bytes = shutil.disk_usage(temporary).free
        if needed_bytes > free_bytes:
            raise Problem(
                f"the copy needs {needed_bytes / 2**20:,.0f} MB and {base.parent} has {free_bytes / 2**20:,.0f} MB: "
                "free space there, or choose another folder with --out"
            )
        fill(temporary)
        temporary.rename(base)
    except OSError as error:
        raise Problem(f"{base} could not be written ({error.strerror}): free space, or use another --out") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return base


def _copy_files(paths: list[str], mask: Mask, folder: Path) -> None:
    # with one class alone the files have more folders in common than the one of all classes
    common = Path(os.path.commonpath([os.path.dirname(path) for path in paths]))
    train = next(parent for parent in (common, *common.parents) if parent.name == _TRAIN)
    for sample in np.flatnonzero(mask):
        path = Path(paths[sample])
        target = folder / _TRAIN / path.relative_to(train)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def _save_images(images: DecodedImages, dataset: Dataset, mask: Mask, folder: Path) -> None:
    """Save images without files of their own under their sample numbers."""
    labels = dataset.train.labels
    for sample in np.flatnonzero(mask).tolist():
        # by class number: a class may be called '..' or contain a slash
        target = folder / _TRAIN / f"{int(labels[sample]):05d}" / f"{sample:08d}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        images.load_image(sample).save(target)


def _check_absent(target: Path) -> None:
    if target.exists():
        raise Problem(f"{target} exists already: move or remove it, or choose another folder with --out")
