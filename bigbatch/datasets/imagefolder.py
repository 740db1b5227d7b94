"""A folder of pictures: train/<class>/*.jpg, val/<class>/*.jpg (the layout of ImageNet, Deng et al. 2009)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from bigbatch.datasets import Dataset
from bigbatch.datasets.reading.download import data_folders
from bigbatch.datasets.reading.lazy_images import LazyImageConfig, LazyImages
from bigbatch.errors import Problem

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}


class Config(LazyImageConfig):
    """Where the images are and how they are cropped."""

    folder: str  # also looked for below the data folders
    flip: bool = True


class FolderImages(LazyImages):
    """Files in the order of their names; `paths[i]` is sample i."""

    def __init__(self, paths: list[str], labels: Tensor, config: Config) -> None:
        super().__init__(labels, config)
        self.paths = paths

    def open(self, sample: int) -> Image.Image:
        return Image.open(self.paths[sample])

    def describe(self, sample: int) -> str:
        return self.paths[sample]


def load(config: Config, data_dir: Path | None = None) -> Dataset:
    """List the files now; images are decoded on demand."""
    root = _find_root(config.folder, data_dir)
    test_root = next((root / name for name in ("val", "test") if (root / name).is_dir()), None)
    if not (root / "train").is_dir() or test_root is None:
        raise Problem(f"{root} needs the folders train and val (or test), each with one folder per class: add them")
    classes = tuple(sorted(path.name for path in (root / "train").iterdir() if path.is_dir()))
    unknown = sorted({path.name for path in test_root.iterdir() if path.is_dir()} - set(classes))
    if unknown:
        raise Problem(f"{test_root} has the class '{unknown[0]}', which {root / 'train'} lacks: add or remove it")
    train, test = (_list_images(folder, classes, config) for folder in (root / "train", test_root))
    shape = (3, config.size, config.size)
    return Dataset(train, test, classes, shape, _hash_file_list(train, root), workers=config.workers)


def _find_root(folder: str, data_dir: Path | None) -> Path:
    given = Path(folder).expanduser()
    candidates = [given, *(data / given for data in data_folders(data_dir))]
    found = next((candidate for candidate in candidates if candidate.is_dir()), None)
    if found is None:
        raise Problem(f"there is no folder {given}, here or below {data_folders(data_dir)[0]}: set folder=... to yours")
    return found


def _list_images(folder: Path, classes: tuple[str, ...], config: Config) -> FolderImages:
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        found = sorted(str(path) for path in (folder / name).rglob("*") if path.suffix.lower() in SUFFIXES)
        paths += found
        labels += [label] * len(found)
    if not paths:
        raise Problem(f"{folder} has no images ({', '.join(sorted(SUFFIXES))}): put them into one folder per class")
    return FolderImages(paths, torch.tensor(labels), config)


def _hash_file_list(samples: FolderImages, root: Path) -> str:
    """Hash names, sizes and labels: reading every image would take as long as an epoch."""
    digest = hashlib.sha256()
    for path, label in zip(samples.paths, samples.labels.tolist(), strict=True):
        digest.update(f"{Path(path).relative_to(root).as_posix()}\0{Path(path).stat().st_size}\0{label}\n".encode())
    return digest.hexdigest()
