"""A copy of the samples that are kept: a tree of picture files, or one .npz. What is copied stays where it is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigbatch.artifacts import atomic
from bigbatch.datasets import Dataset
from bigbatch.datasets.arrays import ArraySamples, open_npz
from bigbatch.errors import Problem
from bigbatch.viewer.pictures import InArray, InFiles, of_dataset

_TRAIN = "train"


def copy(dataset: Dataset, source: Path, mask: NDArray[np.bool_], base: Path) -> Path:
    """`base` with the ending that fits; refused where it exists."""
    pictures = of_dataset(dataset)
    paths = paths_of(dataset)
    if isinstance(dataset.train, ArraySamples):
        return _npz(base, lambda: _rows_of_file(source, mask))
    if paths is not None:
        return _tree(base, lambda folder: _copy_files(paths, mask, folder), _bytes_of(paths, mask))
    if isinstance(pictures, InFiles):
        return _tree(base, lambda folder: _write_pictures(pictures, dataset, mask, folder), 0)
    if isinstance(pictures, InArray):
        return _npz(base, lambda: _rows_of_array(pictures, dataset, mask))
    raise Problem("samples of this dataset are no stored images, so there is nothing to copy: export 'kept' instead")


def paths_of(dataset: Dataset | None) -> list[str] | None:
    """One file a sample, or None."""
    return getattr(dataset.train, "paths", None) if dataset is not None else None


# -- one file


def _npz(base: Path, rows: Callable[[], dict[str, NDArray[Any]]]) -> Path:
    target = base.with_name(f"{base.name}.npz")
    _refuse_existing(target)
    with atomic.replace_file(target) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **rows())
    return target


def _rows_of_file(source: Path, mask: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Of every array with a row a sample the kept rows, and the others whole."""
    arrays = open_npz(source)
    kept = {name: array[mask] if array.shape[:1] == mask.shape else array for name, array in arrays.items()}
    return kept | {"sample": np.flatnonzero(mask)}


def _rows_of_array(pictures: InArray, dataset: Dataset, mask: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    return {
        "images": pictures.images[mask],
        "labels": dataset.train.labels.numpy()[mask],
        "classes": np.array(dataset.classes),
        "sample": np.flatnonzero(mask),
    }


# -- a tree of files


def _tree(base: Path, fill: Callable[[Path], None], needed_bytes: int) -> Path:
    """Filled under a temporary name, then renamed."""
    _refuse_existing(base)
    temporary = base.with_name(f".{base.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        free_bytes = shutil.disk_usage(temporary).free
        if needed_bytes > free_bytes:
            raise Problem(
                f"the copy needs {needed_bytes / 2**20:,.0f} MB and {base.parent} has {free_bytes / 2**20:,.0f}: "
                "make room, or choose another folder with --out"
            )
        fill(temporary)
        temporary.rename(base)
    except OSError as error:
        raise Problem(f"{base} could not be written ({error.strerror}): make room, or use another --out") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return base


def _copy_files(paths: list[str], mask: NDArray[np.bool_], folder: Path) -> None:
    train = _train_folder(paths)
    for sample in np.flatnonzero(mask):
        path = Path(paths[sample])
        target = folder / _TRAIN / path.relative_to(train)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def _train_folder(paths: list[str]) -> Path:
    """The folder of all class folders; with one class alone the files have more than it in common."""
    common = Path(os.path.commonpath([os.path.dirname(path) for path in paths]))
    return next(folder for folder in (common, *common.parents) if folder.name == _TRAIN)


def _bytes_of(paths: list[str], mask: NDArray[np.bool_]) -> int:
    return sum(os.stat(paths[sample]).st_size for sample in np.flatnonzero(mask))


def _write_pictures(pictures: InFiles, dataset: Dataset, mask: NDArray[np.bool_], folder: Path) -> None:
    """Pictures without files of their own are numbered."""
    labels = dataset.train.labels
    for sample in np.flatnonzero(mask).tolist():
        # by number: a class may be called '..' or have a slash in it
        target = folder / _TRAIN / f"{int(labels[sample]):05d}" / f"{sample:08d}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        pictures.image(sample).save(target)


def _refuse_existing(target: Path) -> None:
    if target.exists():
        raise Problem(f"{target} is there already: move or remove it, or choose another folder with --out")
