"""A folder of pictures: train/<class>/*.jpg, val/<class>/*.jpg (the layout of ImageNet, Deng et al. 2009)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import torch
from PIL import Image
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.datasets.reading.download import data_folders
from bigbatch.datasets.reading.lazy_images import Decoding, LazyImages
from bigbatch.errors import Problem

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}


class Config(parts.Config):
    """Where the pictures are and how they are cut."""

    folder: str  # also looked for below the data folders
    size: int = Field(224, ge=1)
    resize: int = Field(256, ge=1)
    augment: Literal["random_resized_crop", "minimal", "none"] = "random_resized_crop"  # minimal: You et al. 2017
    flip: bool = True
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = (0.229, 0.224, 0.225)
    workers: int | None = Field(None, ge=0)  # processes that decode; None: one a core

    @model_validator(mode="after")
    def _crop_fits(self) -> Config:
        if self.size > self.resize:
            raise ValueError(f"size {self.size} cannot be cut out of resize {self.resize}: make resize larger")
        return self


class FolderImages(LazyImages):
    """Files in the order of their names; `paths[i]` is sample i."""

    def __init__(self, paths: list[str], labels: Tensor, decoding: Decoding, workers: int | None) -> None:
        super().__init__(labels, decoding, workers)
        self.paths = paths

    def open(self, sample: int) -> Image.Image:
        """Read from its file."""
        return Image.open(self.paths[sample])

    def describe(self, sample: int) -> str:
        """Its file."""
        return self.paths[sample]


def load(config: Config, data_dir: Path | None = None) -> Dataset:
    """Names are read now, pictures when they are asked for."""
    root = _root(config.folder, data_dir)
    test_root = next((root / name for name in ("val", "test") if (root / name).is_dir()), None)
    if not (root / "train").is_dir() or test_root is None:
        raise Problem(f"{root} needs the folders train and val (or test), each with one folder a class: add them")
    classes = tuple(sorted(path.name for path in (root / "train").iterdir() if path.is_dir()))
    strangers = sorted({path.name for path in test_root.iterdir() if path.is_dir()} - set(classes))
    if strangers:
        raise Problem(f"{test_root} has the class '{strangers[0]}', which {root / 'train'} lacks: add or remove it")
    train, test = _samples(root / "train", classes, config), _samples(test_root, classes, config)
    return Dataset(train, test, classes, (3, config.size, config.size), _hash(train, root))


def _root(folder: str, data_dir: Path | None) -> Path:
    given = Path(folder).expanduser()
    candidates = [given, *(data / given for data in data_folders(data_dir))]
    found = next((candidate for candidate in candidates if candidate.is_dir()), None)
    if found is None:
        raise Problem(f"there is no folder {given}, here or below {data_folders(data_dir)[0]}: set folder=... to yours")
    return found


def _samples(part: Path, classes: tuple[str, ...], config: Config) -> FolderImages:
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        found = sorted(str(path) for path in (part / name).rglob("*") if path.suffix.lower() in SUFFIXES)
        paths += found
        labels += [label] * len(found)
    if not paths:
        raise Problem(f"{part} has no pictures ({', '.join(sorted(SUFFIXES))}): put them into one folder a class")
    decoding = Decoding(config.size, config.resize, config.augment, config.flip, config.mean, config.std)
    return FolderImages(paths, torch.tensor(labels), decoding, config.workers)


def _hash(samples: FolderImages, root: Path) -> str:
    """Over names, sizes and labels: reading every picture would take as long as an epoch."""
    digest = hashlib.sha256()
    for path, label in zip(samples.paths, samples.labels.tolist(), strict=True):
        digest.update(f"{Path(path).relative_to(root).as_posix()}\0{Path(path).stat().st_size}\0{label}\n".encode())
    return digest.hexdigest()
