"""The first station: the penultimate layer's output for every training sample, in a file that memory maps.

features.npy holds row i for sample i, done.npy one byte for each chunk of rows. A chunk is the batch that the
network sees, always the same samples: whoever computes it, one rank or another, before a kill or after, the rows
are the same. Only whole chunks are marked, after their rows are on disk.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bigbatch import models
from bigbatch.datasets import Dataset, sha256
from bigbatch.datasets._workers import Prefetcher, Request
from bigbatch.errors import Problem
from bigbatch.filters import _cache, _ranks
from bigbatch.filters._library import library
from bigbatch.filters._progress import station
from bigbatch.filters._source import Source, check_fit

CHUNK = 256  # samples that the network sees at a time
_SECONDS_BETWEEN_MARKS = 2.0
_PROBED = 8  # samples whose inputs stand for how all are normalised and cropped
_ROWS_PER_READ = 8192

Precision = Literal["float32", "float16"]


def extract(
    source: Source, dataset: Dataset, precision: Precision = "float32", *, any_classes: bool = False
) -> tuple[NDArray[Any], str]:
    """Features [samples, width] as a read-only memory map, and the hash of what they were made from."""
    if source.array is not None:
        _check_array(source.array, len(dataset.train))
        return source.array, source.hash
    if source.file is not None:
        return _from_file(source.file, len(dataset.train), precision, source.hash)
    assert source.module is not None
    return _from_network(source, dataset, precision, any_classes)


# -- by a network


def _from_network(
    source: Source, dataset: Dataset, precision: Precision, any_classes: bool
) -> tuple[NDArray[Any], str]:
    module, device = source.module, _ranks.device()
    assert module is not None
    was_training = module.training
    module.to(device).eval()
    try:
        probe = torch.linspace(0, len(dataset.train) - 1, min(_PROBED, len(dataset.train))).long()
        inputs = dataset.train.fetch(probe)[0]
        name = source.about["network"]
        width = check_fit(module, _to(inputs, module, device), len(dataset.classes), name, any_classes)
        made_from = {
            "dataset": dataset.hash,
            "inputs": sha256(inputs),
            "network": source.hash,
            "precision": precision,
            "chunk": CHUNK,
        }
        key = _cache.hash_of(made_from)
        folder = _cache.folder("features") / key[:32]
        _ranks.by_the_first(lambda: _create(folder, len(dataset.train), width, precision, made_from))
        bad_sample = _fill(folder, source, dataset)
    finally:
        module.train(was_training)
    if bad_sample:
        if _ranks.rank() == 0:
            shutil.rmtree(folder, ignore_errors=True)
        raise Problem(
            f"network {name} gives NaN or infinite features for sample {bad_sample - 1}: "
            "it has diverged or its weights are damaged; give another"
        )
    return np.load(folder / "features.npy", mmap_mode="r"), key


def _create(folder: Path, samples: int, width: int, precision: Precision, made_from: dict[str, Any]) -> None:
    """Empty files under their final names, or none. What is there already is used if it is whole."""
    if _has_shape(folder / "features.npy", (samples, width)) and _has_shape(
        folder / "done.npy", (-(-samples // CHUNK),)
    ):
        return
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        _cache.empty_npy(temporary / "features.npy", precision, (samples, width))
        _cache.empty_npy(temporary / "done.npy", "uint8", (-(-samples // CHUNK),))
        (temporary / "about.json").write_text(json.dumps(made_from, indent=2))
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _has_shape(path: Path, shape: tuple[int, ...]) -> bool:
    """Read-only, since a file that was cut short would be filled up with zeros when opened for writing."""
    try:
        return np.load(path, mmap_mode="r").shape == shape
    except (OSError, ValueError):
        return False


def _fill(folder: Path, source: Source, dataset: Dataset) -> int:
    """Compute this rank's share of the chunks that are missing. 0, or 1 + a sample whose features are not finite."""
    rows, done = (np.load(folder / name, mmap_mode="r+") for name in ("features.npy", "done.npy"))
    missing = np.flatnonzero(done == 0)
    _ranks.largest(0)  # all have read which are missing before one is marked
    mine = np.array_split(missing, _ranks.count())[_ranks.rank()]
    pending: list[int] = []
    marked_at = -math.inf  # the first chunk at once
    bad_sample = 0
    with station("features", len(mine) * CHUNK) as advance:
        for count, (chunk, values) in enumerate(_computed(mine, source, dataset), start=1):
            begin = int(chunk) * CHUNK
            rows[begin : begin + len(values)] = values
            finite = np.isfinite(rows[begin : begin + len(values)]).all(axis=1)  # as stored: float16 may overflow
            if not finite.all():
                bad_sample = begin + int(np.argmin(finite)) + 1
                break
            pending.append(chunk)
            if time.monotonic() - marked_at > _SECONDS_BETWEEN_MARKS:
                _mark(rows, done, pending)
                marked_at = time.monotonic()
            advance(count * CHUNK)
    _mark(rows, done, pending)
    return _ranks.largest(bad_sample)


def _mark(rows: np.memmap[Any, Any], done: np.memmap[Any, Any], pending: list[int]) -> None:
    rows.flush()  # first the rows, then the word that they are there
    done[pending] = 1
    done.flush()
    pending.clear()


@torch.no_grad()
def _computed(chunks: NDArray[np.int64], source: Source, dataset: Dataset) -> Iterator[tuple[int, NDArray[Any]]]:
    module, device = source.module, _ranks.device()
    assert module is not None
    samples = len(dataset.train)
    requests = [
        Request.of(torch.arange(int(chunk) * CHUNK, min(int(chunk) * CHUNK + CHUNK, samples))) for chunk in chunks
    ]
    with Prefetcher(dataset.train) as prefetcher:
        prefetcher.expect(requests)
        for chunk, request in zip(chunks, requests, strict=True):
            inputs, _ = prefetcher.get(request)
            yield int(chunk), models.features(module, _to(inputs, module, device)).float().cpu().numpy()


def _to(inputs: Tensor, module: nn.Module, device: torch.device) -> Tensor:
    """Inputs where the network is and in its precision; a module without parameters takes them as they are."""
    precisions = (parameter.dtype for parameter in module.parameters() if parameter.is_floating_point())
    return inputs.to(device, next(precisions, inputs.dtype))


# -- ready in memory or in a file


def _check_array(features: NDArray[Any], samples: int) -> None:
    if features.ndim != 2 or len(features) != samples:
        raise Problem(f"features have shape {features.shape} but there are {samples} samples: give one row a sample")
    if not np.isfinite(features).all():
        sample = int(np.argmin(np.isfinite(features).all(axis=1)))
        raise Problem(f"features are NaN or infinite for sample {sample}: mend or leave out that row")


def _from_file(path: Path, samples: int, precision: Precision, file_hash: str) -> tuple[NDArray[Any], str]:
    rows = _ranks.by_the_first(lambda: str(_converted(path, samples, precision, file_hash)))
    return np.load(rows, mmap_mode="r"), _cache.hash_of({"features": file_hash, "precision": precision})


def _converted(path: Path, samples: int, precision: Precision, file_hash: str) -> Path:
    """A memory-mapped copy of any kind of file, read a piece at a time."""
    final = _cache.folder("features") / f"{file_hash[:32]}-{precision}.npy"
    if final.exists() and len(np.load(final, mmap_mode="r")) == samples:
        return final
    temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        _copy(path, temporary, samples, precision)
        temporary.replace(final)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error).partition("\n")[0]
        raise Problem(f"features {path} cannot be read ({reason}): save them as [samples, width] numbers") from error
    finally:
        temporary.unlink(missing_ok=True)
    return final


def _copy(path: Path, target: Path, samples: int, precision: Precision) -> None:
    rows: np.memmap[Any, Any] | None = None
    filled = 0
    with station("features", samples) as advance:
        for piece in _pieces(path):
            if piece.ndim != 2 or piece.dtype.kind not in "fiu":
                raise ValueError(f"found {piece.dtype} of shape {piece.shape}")
            if rows is None:
                rows = _cache.empty_npy(target, precision, (samples, piece.shape[1]))
            if filled + len(piece) > samples:
                filled = samples + 1
                break
            rows[filled : filled + len(piece)] = piece
            finite = np.isfinite(rows[filled : filled + len(piece)]).all(axis=1)
            if not finite.all():
                sample = filled + int(np.argmin(finite))
                raise Problem(f"features {path} are NaN or infinite for sample {sample}: mend or leave out that row")
            filled += len(piece)
            advance(filled)
    if filled != samples or rows is None:
        found = f"more than {samples}" if filled > samples else str(filled)
        raise Problem(f"features {path} have {found} rows but the dataset has {samples} samples: give one row a sample")
    rows.flush()


def _pieces(path: Path) -> Iterator[NDArray[Any]]:
    if path.suffix == ".parquet":
        yield from _parquet_pieces(path)
    elif path.suffix == ".npy":
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
        if stored.ndim != 2:
            raise ValueError(f"found shape {stored.shape}")
        for begin in range(0, len(stored), _ROWS_PER_READ):
            yield np.asarray(stored[begin : begin + _ROWS_PER_READ])
    else:
        yield from _npz_pieces(path)


def _npz_pieces(path: Path) -> Iterator[NDArray[Any]]:
    """The array `features`, or the only one, out of the archive without holding all of it."""
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


def _parquet_pieces(path: Path) -> Iterator[NDArray[Any]]:
    """The column `features`, a list in each row, or all columns, a number in each."""
    parquet = library("pyarrow.parquet", f"reading {path.name}")
    with parquet.ParquetFile(path) as file:
        has_lists = "features" in file.schema_arrow.names
        for batch in file.iter_batches(_ROWS_PER_READ, columns=["features"] if has_lists else None):
            if has_lists:
                column = batch.column(0)
                yield column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
            else:
                yield np.stack([column.to_numpy(zero_copy_only=False) for column in batch.columns], axis=1)
