"""The IDX format of MNIST and its successors: big-endian header, then one byte per value."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from bigbatch import parts
from bigbatch.datasets import Dataset, sha256
from bigbatch.datasets.reading.download import FileSet, Remote, check_size, locate_or_download, read_decompressed
from bigbatch.datasets.reading.images import Augment, InMemoryImages
from bigbatch.errors import Problem

FILES = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
_UNSIGNED_BYTE = 0x08

# both sets have the same file names: this identifies files that are directly in the data folder
_FIRST_TRAINING_LABELS = {"MNIST": [5, 0, 4, 1, 9, 2, 1, 3, 1, 4], "Fashion-MNIST": [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]}


class IdxConfig(parts.Config):
    """By default pixels are in 0..1 and not augmented."""

    mean: float = 0.0
    std: PositiveFloat = 1.0
    crop_padding: int = Field(0, ge=0, le=14)
    flip: bool = False


def file_set(title: str, folder: str, address: str, published: tuple[tuple[str, int], ...]) -> FileSet:
    """The four files in torchvision's folder or directly in the data folder; `published` has md5 and size of each."""
    remotes = tuple(
        Remote(f"{name}.gz", f"md5:{md5}", size, folder) for name, (md5, size) in zip(FILES, published, strict=True)
    )
    return FileSet(title, (tuple(f"{folder}/{name}" for name in FILES), FILES), address, remotes)


def load(config: IdxConfig, files: FileSet, classes: tuple[str, ...], data_dir: Path | None) -> Dataset:
    """Load training and test set, with as many samples as the headers say."""
    paths = locate_or_download(files, data_dir)
    augment = Augment((config.mean,), (config.std,), crop_padding=config.crop_padding, flip=config.flip)
    train = _read_samples(paths[0], paths[1], len(classes), augment)
    for other, first_labels in _FIRST_TRAINING_LABELS.items():
        if other != files.title and train.labels[:10].tolist() == first_labels:
            raise Problem(f"{paths[1]} belongs to {other}, not to {files.title}: move {other} into a folder of its own")
    test = _read_samples(paths[2], paths[3], len(classes), augment)
    if train.images.shape[1:] != test.images.shape[1:]:
        raise Problem(
            f"{paths[0]} has images of {tuple(train.images.shape[2:])} pixels, {paths[2]} of "
            f"{tuple(test.images.shape[2:])}: put the files of one dataset there"
        )
    channels, height, width = train.images.shape[1:]
    return Dataset(train, test, classes, (channels, height, width), sha256(train.images, train.labels))


def _read_samples(images_path: Path, labels_path: Path, class_count: int, augment: Augment) -> InMemoryImages:
    images = read_idx(images_path, dimensions=3)
    labels = read_idx(labels_path, dimensions=1).long()
    if len(images) != len(labels):
        raise Problem(
            f"{images_path} has {len(images):,} images, {labels_path} {len(labels):,} labels: "
            "put the files of one dataset there"
        )
    if len(labels) and int(labels.max()) >= class_count:
        raise Problem(f"{labels_path} has label {int(labels.max())}, expected 0 to {class_count - 1}: delete it")
    return InMemoryImages(images[:, None], labels, augment)


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Return a uint8 tensor; the file must be exactly as long as its header says."""
    content = read_decompressed(path)
    header_bytes = 4 + 4 * dimensions
    if len(content) < header_bytes or content[:4] != bytes((0, 0, _UNSIGNED_BYTE, dimensions)):
        raise Problem(
            f"{path} ({len(content):,} bytes) does not begin like an IDX file of bytes with {dimensions} dimensions: "
            "delete it to have it downloaded again"
        )
    shape = struct.unpack(f">{dimensions}I", content[4:header_bytes])
    check_size(path, expected=header_bytes + math.prod(shape), found=len(content))
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=header_bytes).reshape(shape).copy())
