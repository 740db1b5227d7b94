"""A folder of pictures: train/<class>/*.jpg, val/<class>/*.jpg (the layout of ImageNet, Deng et al. 2009)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from bigbatch.artifacts import atomic
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
    return Dataset(train, test, classes, shape, _hash_files(train, root), workers=config.workers)


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
        if not found and folder.name == "train":
            raise Problem(
                f"{folder / name} has no images ({', '.join(sorted(SUFFIXES))}): add some or remove the class"
            )
        paths += found
        labels += [label] * len(found)
    if not paths:
        raise Problem(f"{folder} has no images ({', '.join(sorted(SUFFIXES))}): put them into one folder per class")
    return FolderImages(paths, torch.tensor(labels), config)


def _hash_files(samples: FolderImages, root: Path) -> str:
    """Hash names, labels and contents. A file is read again only if its size or its time of change is another."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bigbatch" / "imagefolder"
    cached = folder / f"{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:32]}.json"
    try:
        known: dict[str, list[int | str]] = json.loads(cached.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}

    def hash_file(path: str) -> tuple[str, list[int | str]]:
        try:
            name, status = Path(path).relative_to(root).as_posix(), Path(path).stat()
            entry = known.get(name)
            if isinstance(entry, list) and entry[:2] == [status.st_size, status.st_mtime_ns]:
                return name, entry
            with Path(path).open("rb") as file:
                return name, [status.st_size, status.st_mtime_ns, hashlib.file_digest(file, "sha256").hexdigest()]
        except OSError as error:
            raise Problem(f"{path} cannot be read ({error.strerror}): replace or remove it") from error

    with ThreadPoolExecutor() as pool:
        found = dict(pool.map(hash_file, samples.paths))
    if found != known:
        with contextlib.suppress(Problem):  # a cache that cannot be written costs time, not the dataset
            atomic.write_text(cached, json.dumps(found))
    digest = hashlib.sha256()
    for (name, entry), label in zip(found.items(), samples.labels.tolist(), strict=True):
        digest.update(f"{name}\0{entry[2]}\0{label}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
