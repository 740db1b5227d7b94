"""Given features: in memory, or in an .npz, .npy or Parquet file that is copied into a memory map once."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bigbatch.artifacts import atomic
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import cache, ranks
from bigbatch.libraries import import_library
from bigbatch.output.progress import stage

_ROWS_PER_READ = 8192

Precision = Literal["float32", "float16"]


def check_features(features: NDArray[np.number], samples: int) -> None:
    """Refuse features that are not one row of finite numbers per sample."""
    if features.ndim != 2 or len(features) != samples:
        raise Problem(f"features have shape {features.shape} but there are {samples} samples: give one row per sample")
    if not np.isfinite(features).all():
        sample = int(np.argmin(np.isfinite(features).all(axis=1)))
        raise Problem(f"features are NaN or infinite for sample {sample}: fix or leave out that row")


def open_features(path: Path, samples: int, precision: Precision, file_hash: str) -> NDArray[np.number]:
    """Open the features of a file as a read-only memory map."""
    rows = ranks.compute_on_rank_zero(lambda: str(_convert_to_npy(path, samples, precision, file_hash)))
    mapped: NDArray[np.number] = np.load(rows, mmap_mode="r")
    return mapped


def _convert_to_npy(path: Path, samples: int, precision: Precision, file_hash: str) -> Path:
    """Copy a file of any format to the cache as .npy, a chunk at a time."""
    final = cache.stage_folder("features") / f"{file_hash[:32]}-{precision}.npy"
    if _is_complete(final, samples):
        return final
    with atomic.replace_file(final) as temporary:
        try:
            _copy_rows(path, temporary, samples, precision)
        except (OSError, ValueError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile) as error:
            reason = str(error).partition("\n")[0]
            raise Problem(
                f"features {path} cannot be read ({reason}): save them as [samples, width] numbers"
            ) from error
    return final


def _is_complete(path: Path, samples: int) -> bool:
    """Whether a file can be mapped: a truncated one, after a full disk or a crash, cannot."""
    try:
        return len(np.load(path, mmap_mode="r")) == samples
    except (OSError, ValueError, EOFError):
        return False


def _copy_rows(path: Path, target: Path, samples: int, precision: Precision) -> None:
    rows: np.memmap[Any, Any] | None = None
    filled = 0
    with stage("features", samples) as advance:
        for chunk in _read_chunks(path):
            if chunk.ndim != 2 or chunk.dtype.kind not in "fiu":
                raise ValueError(f"found {chunk.dtype} of shape {chunk.shape}")
            if rows is None:
                rows = cache.allocate_npy(target, precision, (samples, chunk.shape[1]))
            if filled + len(chunk) > samples:
                filled = samples + 1
                break
            rows[filled : filled + len(chunk)] = chunk
            finite = np.isfinite(rows[filled : filled + len(chunk)]).all(axis=1)
            if not finite.all():
                sample = filled + int(np.argmin(finite))
                raise Problem(f"features {path} are NaN or infinite for sample {sample}: fix or leave out that row")
            filled += len(chunk)
            advance(filled)
    if filled != samples or rows is None:
        found = f"more than {samples}" if filled > samples else str(filled)
        raise Problem(
            f"features {path} have {found} rows but the dataset has {samples} samples: give one row per sample"
        )
    rows.flush()


def _read_chunks(path: Path) -> Iterator[NDArray[np.number]]:
    if path.suffix == ".parquet":
        yield from _read_parquet_chunks(path)
    elif path.suffix == ".npy":
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
        if stored.ndim != 2:
            raise ValueError(f"found shape {stored.shape}")
        for begin in range(0, len(stored), _ROWS_PER_READ):
            yield np.asarray(stored[begin : begin + _ROWS_PER_READ])
    else:
        yield from _read_npz_chunks(path)


def _read_npz_chunks(path: Path) -> Iterator[NDArray[np.number]]:
    """Yield the array `features`, or the only one, without holding all of it in memory."""
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        name = "features" if "features" in names else names[0] if len(names) == 1 else None
        if name is None:
            raise ValueError(f"it holds {', '.join(names)} but no 'features'")
        with archive.open(f"{name}.npy") as member:
            version = np.lib.format.read_magic(member)
            read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, in_columns, dtype = read_header[version](member)
            if len(shape) != 2 or in_columns or dtype.hasobject:
                raise ValueError(f"found {dtype} of shape {shape}{' stored by columns' if in_columns else ''}")
            for begin in range(0, shape[0], _ROWS_PER_READ):
                count = min(_ROWS_PER_READ, shape[0] - begin)
                content = member.read(count * shape[1] * dtype.itemsize)
                yield np.frombuffer(content, dtype).reshape(count, shape[1])


def _read_parquet_chunks(path: Path) -> Iterator[NDArray[np.number]]:
    """Yield the column `features` of lists, or all columns of numbers."""
    parquet = import_library("pyarrow.parquet", f"reading {path.name}")
    with parquet.ParquetFile(path) as file:
        has_lists = "features" in file.schema_arrow.names
        for batch in file.iter_batches(_ROWS_PER_READ, columns=["features"] if has_lists else None):
            if has_lists:
                column = batch.column(0)
                yield column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
            else:
                yield np.stack([column.to_numpy(zero_copy_only=False) for column in batch.columns], axis=1)
