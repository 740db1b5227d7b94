"""Any image classification set of the Hugging Face hub, or one saved with save_to_disk (Lhoest et al. 2021)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor

from bigbatch import parts
from bigbatch.datasets import Dataset, Samples, sha256
from bigbatch.datasets.reading.images import Augment, InMemoryImages
from bigbatch.datasets.reading.lazy_images import Decoding, LazyImages
from bigbatch.errors import Problem, did_you_mean

_MOST_BYTES_IN_MEMORY = 4 << 30


class Config(parts.Config):
    """Which set and columns; `size` and `resize` hold where images differ in size and are decoded when asked for."""

    path: str  # "cifar10", "user/set", or a folder written by save_to_disk
    subset: str | None = None
    revision: str | None = None
    image_column: str = "image"
    label_column: str = "label"
    train_split: str = "train"
    test_split: str = "test"
    size: int = Field(224, ge=1)
    resize: int = Field(256, ge=1)
    augment: Literal["random_resized_crop", "minimal", "none"] = "random_resized_crop"  # of images decoded lazily
    crop_padding: int = Field(0, ge=0)  # of images in memory
    flip: bool = False
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)  # the first holds for grey images
    std: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = (0.229, 0.224, 0.225)
    workers: int | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _crop_fits(self) -> Config:
        if self.size > self.resize:
            raise ValueError(f"size {self.size} cannot be cut out of resize {self.resize}: make resize larger")
        return self


class HubImages(LazyImages):
    """Rows of a table whose images are decoded when they are asked for."""

    def __init__(self, rows: Any, config: Config, labels: Tensor) -> None:
        decoding = Decoding(config.size, config.resize, config.augment, config.flip, config.mean, config.std)
        super().__init__(labels, decoding, config.workers)
        self.rows, self.column, self.path = rows, config.image_column, config.path

    def open(self, sample: int) -> Image.Image:
        """Decoded by the library."""
        image: Image.Image = self.rows[sample][self.column]
        return image

    def describe(self, sample: int) -> str:
        """Its row."""
        return f"row {sample} of {self.path}"


def load(config: Config, data_dir: Path | None = None) -> Dataset:
    """In memory where all images have one size and fit; else decoded lazily. `data_dir` is where downloads are kept."""
    splits = _open(config, data_dir)
    for split in (config.train_split, config.test_split):
        if split not in splits:
            raise Problem(f"{config.path} has no split '{split}'{did_you_mean(split, splits)} It has {list(splits)}")
    train_rows, test_rows = splits[config.train_split], splits[config.test_split]
    for column in (config.image_column, config.label_column):
        if column not in train_rows.features:
            near = did_you_mean(column, train_rows.features)
            raise Problem(f"{config.path} has no column '{column}'{near} It has {list(train_rows.features)}")
    classes, train_labels, test_labels = _labels(config, train_rows, test_rows)
    train_pixels = _one_size(train_rows, config.image_column)
    test_pixels = None if train_pixels is None else _one_size(test_rows, config.image_column)
    train: Samples
    test: Samples
    if train_pixels is None or test_pixels is None or train_pixels.shape[1:] != test_pixels.shape[1:]:
        train, test = HubImages(train_rows, config, train_labels), HubImages(test_rows, config, test_labels)
        rows_hash = hashlib.sha256(f"{train_rows._fingerprint}{sha256(train_labels)}".encode()).hexdigest()
        return Dataset(train, test, classes, (3, config.size, config.size), rows_hash)
    channels, height, width = train_pixels.shape[1:]
    mean, std = config.mean[:channels], config.std[:channels]
    augment = Augment(mean, std, crop_padding=config.crop_padding, flip=config.flip)
    train = InMemoryImages(train_pixels, train_labels, augment)
    test = InMemoryImages(test_pixels, test_labels, augment)
    return Dataset(train, test, classes, (channels, height, width), sha256(train_pixels, train_labels))


def _open(config: Config, data_dir: Path | None) -> Any:
    """A dict of splits."""
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


def _labels(config: Config, *parts_of_set: Any) -> tuple[tuple[str, ...], Tensor, Tensor]:
    """Names of the classes, and the numbers of both splits; names are sorted where the set does not name them."""
    train, test = (list(rows[config.label_column]) for rows in parts_of_set)
    known = getattr(parts_of_set[0].features[config.label_column], "names", None)
    if known:
        if min(train + test) < 0:
            raise Problem(f"{config.path} has samples without a label: choose other splits, like test_split=validation")
        return tuple(known), torch.tensor(train), torch.tensor(test)
    values = sorted(set(train))
    number_of = {value: number for number, value in enumerate(values)}
    stranger = next((value for value in test if value not in number_of), None)
    if stranger is not None:
        raise Problem(f"{config.path}: label {stranger!r} is only in '{config.test_split}': choose other splits")
    train_numbers, test_numbers = (torch.tensor([number_of[label] for label in labels]) for labels in (train, test))
    return tuple(str(value) for value in values), train_numbers, test_numbers


def _one_size(rows: Any, column: str) -> Tensor | None:
    """uint8 [N, 1 or 3, H, W], or None as soon as an image differs from the first or all would not fit."""
    first = rows[0][column]
    mode = "L" if first.mode in ("L", "1") else "RGB"
    channels = 1 if mode == "L" else 3
    if len(rows) * channels * first.width * first.height > _MOST_BYTES_IN_MEMORY:
        return None
    pixels = np.empty((len(rows), first.height, first.width, channels), np.uint8)
    for number, row in enumerate(rows):
        if row[column].size != first.size:
            return None
        pixels[number] = np.asarray(row[column].convert(mode)).reshape(pixels.shape[1:])
    return torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())
