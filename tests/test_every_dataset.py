"""What every dataset promises, on small files in the official layouts. A new dataset is found by its file."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from bigbatch import parts, rng
from bigbatch.datasets import Dataset, Samples, load


def _random(count: int, key: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return rng.integers(256, key, np.arange(count)).astype(np.uint8)


def _nothing(folder: Path) -> None:
    """The dataset brings its own files."""


def _cifar10(folder: Path) -> None:
    (folder / "cifar-10-batches-bin").mkdir()
    for key, name in enumerate([*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]):
        rows = _random(8 * 3073, key).reshape(8, 3073)
        rows[:, 0] %= 10
        rows.tofile(folder / f"cifar-10-batches-bin/{name}.bin")


def _idx(place: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / place).mkdir(parents=True)
        for part, count in (("train", 30), ("t10k", 10)):
            images, labels = _random(count * 784, 1), _random(count, 2) % 10
            (folder / place / f"{part}-images-idx3-ubyte").write_bytes(
                struct.pack(">4I", 0x803, count, 28, 28) + images.tobytes()
            )
            (folder / place / f"{part}-labels-idx1-ubyte").write_bytes(
                struct.pack(">2I", 0x801, count) + labels.tobytes()
            )

    return write


def _ptb(folder: Path) -> None:
    (folder / "ptb").mkdir()
    words = ("<unk>", "the", "market", "fell", "N")
    for name, count in (("train", 300), ("valid", 50), ("test", 60)):
        text = " ".join(words[number] for number in rng.integers(5, 3, np.arange(count)))
        (folder / f"ptb/ptb.{name}.txt").write_text(f" {text} \n")


def _imagefolder(folder: Path) -> None:
    for part in ("train", "val"):
        for name in ("cat", "dog"):
            (folder / "pictures" / part / name).mkdir(parents=True)
            for number in range(5):
                image = Image.fromarray(_random(16 * 12 * 3, number).reshape(16, 12, 3))
                image.save(folder / "pictures" / part / name / f"{number}.png")


def _hub(folder: Path) -> None:
    pytest.importorskip("datasets.arrow_dataset")  # the folder tests/datasets can be imported as "datasets" too
    datasets = importlib.import_module("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    images = [Image.fromarray(_random(16 * 12 * 3, number).reshape(16, 12, 3)) for number in range(10)]
    rows = datasets.Dataset.from_dict({"image": images, "label": [0, 1] * 5}, features=features)
    datasets.DatasetDict(train=rows, test=rows).save_to_disk(str(folder / "saved"))


def _arrays(folder: Path) -> None:
    images, labels = _random(12 * 8 * 6 * 3, 4).reshape(12, 8, 6, 3), _random(12, 5).astype(int) % 3
    np.savez(folder / "arrays.npz", images=images, labels=labels, classes=["a", "b", "c"])


# how a small copy is written; the options that read it; the file of which a byte is changed; whether it augments
SMALL: dict[str, tuple[Callable[[Path], None], dict[str, Any], str | None, bool]] = {
    "digits": (_nothing, {}, None, False),
    "cifar10": (_cifar10, {"records_per_file": 8}, "cifar-10-batches-bin/data_batch_4.bin", True),
    "mnist": (_idx("MNIST/raw"), {"crop_padding": 2}, "MNIST/raw/train-images-idx3-ubyte", True),
    "fashion_mnist": (_idx("FashionMNIST/raw"), {}, "FashionMNIST/raw/train-images-idx3-ubyte", False),
    "ptb": (_ptb, {"official": False, "steps": 5}, "ptb/ptb.train.txt", False),
    "imagefolder": (_imagefolder, {"folder": "pictures", "size": 8, "resize": 9}, None, True),
    "arrays": (_arrays, {"path": "{folder}/arrays.npz"}, None, False),
    "held_out": (_nothing, {"of": "digits"}, None, False),
    "planted": (_nothing, {"of": "digits", "samples": 300}, None, False),
    "markov_text": (_nothing, {"tokens": 200, "steps": 5}, None, False),
    "synthetic": (_nothing, {"samples": 20, "sample_shape": (1, 4, 5)}, None, False),
    "hub": (_hub, {"path": "{folder}/saved", "flip": True}, None, True),
}
NAMES = parts.names("datasets")


def small(name: str, folder: Path) -> Dataset:
    options = {key: value.format(folder=folder) if key == "path" else value for key, value in SMALL[name][1].items()}
    return load(parts.configure("datasets", {"name": name, **options}), folder)


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    SMALL[request.getfixturevalue("name")][0](tmp_path)
    return tmp_path


def samples_of(dataset: Dataset) -> Samples:
    return dataset.train.as_streams(4) if dataset.task == "language" else dataset.train  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is_and_refuses_what_it_does_not_know(name: str) -> None:
    assert len(parts.summary("datasets", name)) > 20
    module = parts.find("datasets", name)
    assert issubclass(module.Config, parts.Config)
    assert callable(module.load)
    assert name in SMALL, f"write a small copy of {name} into SMALL, so that its promises are tested"
    with pytest.raises(Exception, match="no_such_option"):
        parts.configure("datasets", {"name": name, "no_such_option": 1, **SMALL[name][1]})


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_the_same_in_any_order_and_split(name: str, folder: Path) -> None:
    samples = samples_of(small(name, folder))
    count = min(len(samples), 40)
    for epoch in (None, 0, 3):
        whole = samples.fetch(torch.arange(count), seed=2, epoch=epoch)
        order = rng.permutation(count, 1)
        pieces = [samples.fetch(piece, seed=2, epoch=epoch) for piece in order.split(3)]
        for part in (0, 1):
            assert torch.equal(torch.cat([piece[part] for piece in pieces]), whole[part][order])


@pytest.mark.parametrize("name", NAMES)
def test_only_seed_and_epoch_change_what_is_augmented(name: str, folder: Path) -> None:
    samples, again = samples_of(small(name, folder)), samples_of(small(name, folder))
    some, augments = torch.arange(min(len(samples), 10)), SMALL[name][3]
    first = samples.fetch(some, seed=1, epoch=0)[0]
    samples.fetch(some, seed=9, epoch=9)  # what was fetched before does not matter
    assert torch.equal(first, again.fetch(some, seed=1, epoch=0)[0])
    assert torch.equal(samples.fetch(some, seed=1)[0], again.fetch(some, seed=2)[0])
    assert torch.equal(first, samples.fetch(some, seed=1, epoch=1)[0]) != augments
    assert torch.equal(first, samples.fetch(some, seed=2, epoch=0)[0]) != augments


@pytest.mark.parametrize("name", NAMES)
def test_shapes_types_and_labels_are_as_announced(name: str, folder: Path) -> None:
    dataset = small(name, folder)
    samples = samples_of(dataset)
    inputs, targets = samples.fetch(torch.arange(len(samples)), epoch=0)
    assert inputs.shape == (len(samples), *dataset.sample_shape)
    assert targets.dtype == torch.int64
    assert targets.min() >= 0
    assert targets.max() < len(dataset.classes)
    if dataset.task == "classify":
        assert inputs.dtype == torch.float32
        assert torch.equal(targets, dataset.train.labels)
        assert dataset.test.fetch(torch.arange(len(dataset.test)))[0].shape[1:] == dataset.sample_shape
    else:
        assert torch.equal(inputs[:, 1:], targets[:, :-1])


@pytest.mark.parametrize("name", NAMES)
def test_the_hash_is_stable_and_changes_with_one_byte(name: str, folder: Path) -> None:
    before = small(name, folder).hash
    assert len(before) == 64
    assert small(name, folder).hash == before
    changed = SMALL[name][2]
    if changed is not None:
        content = bytearray((folder / changed).read_bytes())
        content[-20] ^= 1
        (folder / changed).write_bytes(content)
        assert small(name, folder).hash != before
