from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from bigbatch import parts, rng
from bigbatch.datasets import Dataset
from bigbatch.datasets import load as load_dataset
from bigbatch.datasets.hub import HubImages
from bigbatch.datasets.reading.images import InMemoryImages
from bigbatch.datasets.reading.prefetch import FetchRequest, Prefetcher
from bigbatch.errors import Problem


def library() -> Any:
    """The real one: a folder of tests called datasets can be imported too."""
    pytest.importorskip("datasets.arrow_dataset")
    return importlib.import_module("datasets")


def load(path: Path | str, **options: Any) -> Dataset:
    return load_dataset(parts.configure("datasets", {"name": "hub", "path": str(path), **options}))


def pixels(key: int, height: int, width: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return rng.integers(256, key, np.arange(height * width * 3)).astype(np.uint8).reshape(height, width, 3)


def saved(folder: Path, *, one_size: bool, names: bool = True) -> Path:
    datasets = library()
    label = datasets.ClassLabel(names=["no", "yes"]) if names else datasets.Value("string")
    features = datasets.Features({"image": datasets.Image(), "label": label})
    splits = {}
    for split, count in (("train", 6), ("test", 2)):
        heights = [12] * count if one_size else [12 + number for number in range(count)]
        images = [Image.fromarray(pixels(number, height, 10)) for number, height in enumerate(heights)]
        labels = [number % 2 if names else ("yes", "no")[number % 2] for number in range(count)]
        splits[split] = datasets.Dataset.from_dict({"image": images, "label": labels}, features=features)
    datasets.DatasetDict(splits).save_to_disk(str(folder))
    return folder


def test_images_of_one_size_are_in_memory(tmp_path: Path) -> None:
    dataset = load(saved(tmp_path / "set", one_size=True), mean=(0, 0, 0), std=(1, 1, 1))
    assert isinstance(dataset.train, InMemoryImages)
    assert (dataset.classes, dataset.sample_shape) == (("no", "yes"), (3, 12, 10))
    assert dataset.train.labels.tolist() == [0, 1, 0, 1, 0, 1]
    expected = torch.from_numpy(pixels(4, 12, 10)).permute(2, 0, 1)
    assert torch.equal(dataset.train.images[4], expected)
    assert dataset.hash == load(tmp_path / "set").hash


def test_images_of_many_sizes_are_decoded_by_workers(tmp_path: Path) -> None:
    dataset = load(saved(tmp_path / "set", one_size=False), size=8, resize=9)
    assert isinstance(dataset.train, HubImages)
    assert dataset.sample_shape == (3, 8, 8)
    here = dataset.train.fetch(torch.arange(6), seed=1, epoch=0)
    with Prefetcher(dataset.train, workers=1) as prefetcher:
        there = prefetcher.get(FetchRequest.of(torch.arange(6), seed=1, epoch=0))
    assert torch.equal(here[0], there[0])
    assert here[1].tolist() == there[1].tolist() == [0, 1, 0, 1, 0, 1]
    assert dataset.hash == load(tmp_path / "set", size=8, resize=9).hash


def test_labels_without_names_are_numbered_in_order(tmp_path: Path) -> None:
    dataset = load(saved(tmp_path / "set", one_size=True, names=False))
    assert dataset.classes == ("no", "yes")
    assert dataset.train.labels.tolist() == [1, 0, 1, 0, 1, 0]


def test_wrong_columns_and_splits_are_named(tmp_path: Path) -> None:
    saved(tmp_path / "set", one_size=True)
    with pytest.raises(Problem, match=r"no column 'img'; did you mean 'image'\? It has \['image', 'label'\]"):
        load(tmp_path / "set", image_column="img")
    with pytest.raises(Problem, match=r"no split 'tests'; did you mean 'test'\?"):
        load(tmp_path / "set", test_split="tests")


def test_a_set_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = library()
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Problem, match=r"nobody/nothing cannot be loaded from the hub .*check the name and the network"):
        load("nobody/nothing")


@pytest.mark.parametrize("found", [None, types.ModuleType("datasets")], ids=["nothing", "a folder of that name"])
def test_without_the_library_the_command_is_named(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    monkeypatch.setitem(sys.modules, "datasets", found)
    with pytest.raises(Problem, match=r"pip install 'bigbatch\[hub\]'"):
        load("cifar10")
