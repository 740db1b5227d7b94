"""Any image classification set of the Hugging Face hub, or one saved with save_to_disk (Lhoest et al. 2021)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from pydantic import Field
from torch import Tensor

from bigbatch.datasets import Dataset, Samples, sha256
from bigbatch.datasets.reading.images import Augment, InMemoryImages
from bigbatch.datasets.reading.lazy_images import LazyImageConfig, LazyImages
from bigbatch.errors import Problem, did_you_mean

_MAX_BYTES_IN_MEMORY = 4 << 30


class Config(LazyImageConfig):
    """Which set and columns. `size`, `resize` and `augment` apply to images of unequal size, decoded lazily."""

    path: str  # "cifar10", "user/set", or a folder written by save_to_disk
    subset: str | None = None
    revision: str | None = None
    image_column: str = "image"
    label_column: str = "label"
    train_split: str = "train"
    test_split: str = "test"
    crop_padding: int = Field(0, ge=0)  # of images in memory


class HubImages(LazyImages):
    """Rows of a table whose images are decoded on demand."""

    def __init__(self, rows: Any, config: Config, labels: Tensor) -> None:
        super().__init__(labels, config)
        self.rows, self.column, self.path = rows, config.image_column, config.path

    def open(self, sample: int) -> Image.Image:
        image: Image.Image = self.rows[sample][self.column]
        return image

    def describe(self, sample: int) -> str:
        return f"row {sample} of {self.path}"


def load(config: Config, data_dir: Path | None = None) -> Dataset:
    """Load into memory if all images have one size and fit, else decode lazily. Downloads are kept in `data_dir`."""
    splits = _open_splits(config, data_dir)
    for split in (config.train_split, config.test_split):
        if split not in splits:
            raise Problem(f"{config.path} has no split '{split}'{did_you_mean(split, splits)} It has {list(splits)}")
    train_rows, test_rows = splits[config.train_split], splits[config.test_split]
    for column in (config.image_column, config.label_column):
        if column not in train_rows.features:
            near = did_you_mean(column, train_rows.features)
            raise Problem(f"{config.path} has no column '{column}'{near} It has {list(train_rows.features)}")
    classes, train_labels, test_labels = _number_labels(config, train_rows, test_rows)
    train_pixels = _decode_equal_sizes(train_rows, config.image_column)
    test_pixels = None if train_pixels is None else _decode_equal_sizes(test_rows, config.image_column)
    train: Samples
    test: Samples
    if train_pixels is None or test_pixels is None or train_pixels.shape[1:] != test_pixels.shape[1:]:
        train, test = HubImages(train_rows, config, train_labels), HubImages(test_rows, config, test_labels)
        rows_hash = hashlib.sha256(f"{train_rows._fingerprint}{sha256(train_labels)}".encode()).hexdigest()
        return Dataset(train, test, classes, (3, config.size, config.size), rows_hash, workers=config.workers)
    channels, height, width = train_pixels.shape[1:]
    mean, std = config.mean[:channels], config.std[:channels]
    augment = Augment(mean, std, crop_padding=config.crop_padding, flip=config.flip)
    train = InMemoryImages(train_pixels, train_labels, augment)
    test = InMemoryImages(test_pixels, test_labels, augment)
    return Dataset(train, test, classes, (channels, height, width), sha256(train_pixels, train_labels))


def _open_splits(config: Config, data_dir: Path | None) -> Any:
    """Return a dict of splits."""
    try:
        # by name, because a mere folder called datasets on the path can be imported too
        from datasets import load_dataset, load_from_disk
    except ImportError as error:
        raise Problem(
            "dataset 'hub' needs the datasets library: install it with  pip install 'bigbatch[hub]'"
        ) from error
    try:
        if Path(config.path).expanduser().is_dir():
            return load_from_disk(str(Path(config.path).expanduser()))
        cache = None if data_dir is None else str(data_dir / "huggingface")
        return load_dataset(config.path, config.subset, revision=config.revision, cache_dir=cache)
    except (OSError, ValueError, RuntimeError) as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise Problem(
            f"{config.path} cannot be loaded from the hub ({first_line}): check the name and the network, or set "
            "path to a folder written with save_to_disk"
        ) from error


def _number_labels(config: Config, train_rows: Any, test_rows: Any) -> tuple[tuple[str, ...], Tensor, Tensor]:
    """Return class names and the labels of both splits; names are sorted where the set does not name its classes."""
    train, test = (list(rows[config.label_column]) for rows in (train_rows, test_rows))
    known = getattr(train_rows.features[config.label_column], "names", None)  # only the library's ClassLabel has them
    if known:
        if min(train + test) < 0:
            raise Problem(f"{config.path} has samples without a label: choose other splits, like test_split=validation")
        return tuple(known), torch.tensor(train), torch.tensor(test)
    values = sorted(set(train))
    number_of = {value: number for number, value in enumerate(values)}
    unknown = next((value for value in test if value not in number_of), None)
    if unknown is not None:
        raise Problem(f"{config.path}: label {unknown!r} is only in '{config.test_split}': choose other splits")
    train_numbers, test_numbers = (torch.tensor([number_of[label] for label in labels]) for labels in (train, test))
    return tuple(str(value) for value in values), train_numbers, test_numbers


def _decode_equal_sizes(rows: Any, column: str) -> Tensor | None:
    """Return uint8 [N, 1 or 3, H, W], or None if an image differs in size from the first or all would not fit."""
    first = rows[0][column]
    mode = "L" if first.mode in ("L", "1") else "RGB"
    channels = 1 if mode == "L" else 3
    if len(rows) * channels * first.width * first.height > _MAX_BYTES_IN_MEMORY:
        return None
    pixels = np.empty((len(rows), first.height, first.width, channels), np.uint8)
    for number, row in enumerate(rows):
        if row[column].size != first.size:
            return None
        pixels[number] = np.asarray(row[column].convert(mode)).reshape(pixels.shape[1:])
    return torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())
