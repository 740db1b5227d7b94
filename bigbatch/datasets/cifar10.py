"""CIFAR-10: 60,000 colour images of 32 x 32 pixels in ten classes (Krizhevsky 2009)."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat
from torch import Tensor

from bigbatch import parts
from bigbatch.datasets import Dataset, sha256
from bigbatch.datasets.reading.download import FileSet, Remote, check_size, locate_or_download, read_decompressed
from bigbatch.datasets.reading.images import Augment, InMemoryImages
from bigbatch.errors import Problem

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IMAGE_SHAPE = (3, 32, 32)
IMAGE_BYTES = 3 * 32 * 32
RECORD_BYTES = 1 + IMAGE_BYTES

_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_BINARY = tuple(f"cifar-10-batches-bin/{name}.bin" for name in _BATCHES)
FILES = FileSet(
    title="CIFAR-10",
    layouts=(_BINARY, tuple(f"cifar-10-batches-py/{name}" for name in _BATCHES)),
    address="https://www.cs.toronto.edu/~kriz/",
    remotes=(
        Remote(
            name="cifar-10-binary.tar.gz",
            checksum="md5:c32a1d4ab5d03f1284b67883e8d87530",
            size=170_052_171,
            members=dict.fromkeys(_BINARY, ""),
        ),
    ),
)


class Config(parts.Config):
    """How images are augmented and normalised. ImageNet's mean and std are .485 .456 .406 and .229 .224 .225."""

    augment: bool = True  # in training: a random crop and a flip
    crop: int | None = Field(None, ge=1, le=32)  # None: 32 out of 40 x 40, padded; 28: as in Gahlot et al. 2020
    mean: tuple[float, float, float] = (0.4914, 0.4822, 0.4465)
    std: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = (0.2470, 0.2435, 0.2616)
    records_per_file: int = Field(10_000, ge=1)  # the published files have 10,000; fewer in files shortened on purpose


def load(config: Config, data_dir: Path | None = None) -> Dataset:
    """Load the five training files in order, and the test file; the binary or the Python version."""
    *train_paths, test_path = locate_or_download(FILES, data_dir)
    images, labels = _read_batches(train_paths, config.records_per_file)
    test_images, test_labels = _read_batches([test_path], config.records_per_file)
    side = config.crop or 32
    augment = Augment(
        mean=config.mean,
        std=config.std,
        crop_padding=4 if config.crop is None else 0,
        crop_size=config.crop,
        flip=True,
        random=config.augment,
    )
    return Dataset(
        train=InMemoryImages(images, labels, augment),
        test=InMemoryImages(test_images, test_labels, replace(augment, random=False)),
        classes=CLASSES,
        sample_shape=(3, side, side),
        hash=sha256(images, labels),
    )


def _read_batches(paths: list[Path], records: int) -> tuple[Tensor, Tensor]:
    """uint8 images [files * records, 3, 32, 32] and int64 labels."""
    images = np.empty((len(paths), records, *IMAGE_SHAPE), np.uint8)
    labels = np.empty((len(paths), records), np.int64)
    for number, path in enumerate(paths):
        is_binary = path.parent.name.endswith("-bin")
        labels[number], pixels = (_from_binary if is_binary else _from_pickle)(
            path, read_decompressed(path, 2 * records * RECORD_BYTES), records
        )
        images[number] = pixels.reshape(images.shape[1:])
        if labels[number].max() >= len(CLASSES) or labels[number].min() < 0:
            raise Problem(f"{path} has a label outside 0 to {len(CLASSES) - 1}: delete it to have it downloaded again")
    return torch.from_numpy(images).flatten(0, 1), torch.from_numpy(labels).flatten()


def _from_binary(path: Path, content: bytes, records: int) -> tuple[NDArray[np.integer], NDArray[np.uint8]]:
    """Each record has a label byte and 3,072 pixel bytes; there is no header."""
    check_size(path, expected=records * RECORD_BYTES, found=len(content))
    rows = np.frombuffer(content, np.uint8).reshape(records, RECORD_BYTES)
    return rows[:, 0], rows[:, 1:]


def _from_pickle(path: Path, content: bytes, records: int) -> tuple[NDArray[np.integer], NDArray[np.uint8]]:
    """A dict pickled by Python 2: b"data" is a uint8 array [records, 3072], b"labels" a list."""
    try:
        batch = _BytesOnly(io.BytesIO(content), encoding="bytes").load()
        labels = np.asarray(batch[b"labels"])
        _, shape, dtype, in_columns, pixels = batch[b"data"].state
        complete = (*shape, dtype.arguments[0]) in ((records, IMAGE_BYTES, "u1"), (records, IMAGE_BYTES, b"u1"))
        complete &= len(pixels) == records * IMAGE_BYTES and labels.shape == (records,) and labels.dtype.kind == "i"
    except Exception as error:  # a damaged pickle may raise anything
        raise Problem(
            f"{path} ({len(content):,} bytes) is not a complete CIFAR-10 batch ({error}): "
            "delete it to have it downloaded again"
        ) from error
    if not complete or in_columns:
        raise Problem(
            f"{path} is not complete: expected {records:,} records of {IMAGE_BYTES:,} bytes, found images "
            f"{shape} and labels {labels.shape}; delete it to have it downloaded again"
        )
    return labels, np.frombuffer(pixels, np.uint8).reshape(records, IMAGE_BYTES)


class _Stored:
    """What a pickle says of a numpy array or dtype. numpy itself crashes on a damaged state."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state


def _latin1_bytes(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes into a pickle that Python 2 can read."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes encoded as {encoding!r}")
    return text.encode("latin1")


class _BytesOnly(pickle._Unpickler):
    """Pickles may call anything; here they call nothing, and arrays stay the bytes that are stored.

    This is Python's own reader written in Python: the one in C allocates what a damaged opcode claims.
    """

    dispatch = {code: read for code, read in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]}  # noqa: RUF012

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _latin1_bytes
        if module.startswith("numpy") and name in ("_reconstruct", "ndarray", "dtype"):
            return _Stored
        raise pickle.UnpicklingError(f"it needs {module}.{name}, which the published ones do not")
