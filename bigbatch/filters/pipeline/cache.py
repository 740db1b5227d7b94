"""The cache of each stage's output, by the hash of all its inputs.

A changed eps reuses the map, a changed perplexity the principal components, a new network nothing. Files are in
$XDG_CACHE_HOME/bigbatch/filters and may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bigbatch.artifacts import atomic
from bigbatch.datasets.reading.hashing import hash_json
from bigbatch.errors import Problem

Arrays = dict[str, NDArray[Any]]

_root: ContextVar[Path | None] = ContextVar("root", default=None)


@contextmanager
def use_folder(root: Path) -> Iterator[None]:
    """Use another folder as the cache within the block: an empty one computes everything again."""
    token = _root.set(root)
    try:
        yield
    finally:
        _root.reset(token)


def stage_folder(stage: str) -> Path:
    """The folder of a stage below $XDG_CACHE_HOME/bigbatch/filters, created if needed."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = (_root.get() or home / "bigbatch" / "filters") / stage
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise Problem(
            f"the cache {path} cannot be made or written to ({error.strerror}): "
            "set XDG_CACHE_HOME to a folder where you may write"
        ) from error
    return path


def load_or_compute(stage: str, key_fields: dict[str, Any], compute: Callable[[], Arrays]) -> Arrays:
    """Arrays from the cache, or computed and stored there. A damaged file is computed again."""
    path = stage_folder(stage) / f"{hash_json(key_fields)[:32]}.npz"
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        pass
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        path.unlink(missing_ok=True)
    computed = compute()
    # a full disk costs the next run time, not this one its result
    with contextlib.suppress(Problem), atomic.replace_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **computed)
    return computed


def allocate_npy(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """A memory-mapped array of zeros with its disk space allocated: writing to a full disk would kill the process."""
    size = int(np.dtype(dtype).itemsize * np.prod(shape, dtype=np.int64))
    try:
        array = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), shape)
        size = path.stat().st_size
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise Problem(
            f"{path.parent} has no room for {size / 2**20:,.0f} MB of features ({error.strerror}): "
            "free space there, or set XDG_CACHE_HOME to another disk"
        ) from error
    return array


def npy_shape(path: Path) -> tuple[int, ...] | None:
    """The shape of a complete .npy, else None. It is mapped read-only: writing would extend a truncated file."""
    try:
        return tuple(np.load(path, mmap_mode="r").shape)
    except (OSError, ValueError, EOFError):
        return None
