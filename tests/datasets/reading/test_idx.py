from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bigbatch import parts, rng
from bigbatch.datasets import Dataset
from bigbatch.datasets import load as load_dataset
from bigbatch.errors import Problem

PLACES = [("mnist", "MNIST/raw"), ("fashion_mnist", "FashionMNIST/raw")]
MNIST_LABELS = [5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3, 5]


def idx(array: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write(folder: Path, *, zipped: bool = False, labels: list[int] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 12), ("t10k", 4)):
        pixels = rng.integers(256, count, np.arange(count * 28 * 28)).astype(np.uint8).reshape(count, 28, 28)
        numbers = np.array((labels or list(range(12)))[:count], np.uint8) % 10
        for kind, array in (("images-idx3", pixels), ("labels-idx1", numbers)):
            name = f"{part}-{kind}-ubyte" + (".gz" if zipped else "")
            (folder / name).write_bytes(gzip.compress(idx(array)) if zipped else idx(array))
    return folder


def load(name: str, folder: Path | None, **options: Any) -> Dataset:
    return load_dataset(parts.configure("datasets", {"name": name, **options}), folder)


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_raw_or_zipped_in_either_folder_is_one_dataset(tmp_path: Path, name: str, place: str) -> None:
    write(tmp_path / "a" / place)
    write(tmp_path / "b" / place, zipped=True)
    write(tmp_path / "c")
    a, b, c = (load(name, tmp_path / folder) for folder in "abc")
    assert a.hash == b.hash == c.hash
    assert (len(a.train), len(a.test), a.sample_shape) == (12, 4, (1, 28, 28))
    assert a.train.labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]


def test_pixels_are_in_0_to_1_unless_normalised(tmp_path: Path) -> None:
    write(tmp_path)
    pixels = rng.integers(256, 12, np.arange(28 * 28)).reshape(28, 28) / 255
    plain = load("mnist", tmp_path).train.fetch(torch.tensor([0]), epoch=0)[0][0, 0]
    np.testing.assert_allclose(plain, pixels, atol=1e-6)
    scaled = load("mnist", tmp_path, mean=0.5, std=0.25).train.fetch(torch.tensor([0]), epoch=0)[0][0, 0]
    np.testing.assert_allclose(scaled, (pixels - 0.5) / 0.25, atol=1e-5)


def test_the_two_sets_are_not_mistaken_for_each_other(tmp_path: Path) -> None:
    write(tmp_path, labels=MNIST_LABELS)
    assert len(load("mnist", tmp_path).train) == 12
    with pytest.raises(Problem, match=r"train-labels-idx1-ubyte belongs to MNIST, not to Fashion-MNIST"):
        load("fashion_mnist", tmp_path)


def test_a_file_that_is_not_as_long_as_its_header_says_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path) / "t10k-images-idx3-ubyte"
    whole = path.read_bytes()
    for content, found in ((whole[:-1], "3,151"), (whole + b"\0", "3,153")):
        path.write_bytes(content)
        with pytest.raises(
            Problem, match=rf"t10k-images-idx3-ubyte is not complete: expected 3,152 bytes, found {found}"
        ):
            load("mnist", tmp_path)


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", bytes((0, 0, 13, 3)) + bytes(12)])
def test_something_else_in_its_place_is_refused(tmp_path: Path, content: bytes) -> None:
    (write(tmp_path) / "train-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(Problem, match=rf"train-images-idx3-ubyte \({len(content)} bytes\) does not begin like"):
        load("mnist", tmp_path)


def test_images_and_labels_must_belong_together(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(11, np.uint8)))
    with pytest.raises(Problem, match=r"12 images, .* 11 labels"):
        load("mnist", tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.full(12, 10, np.uint8)))
    with pytest.raises(Problem, match="has label 10, expected 0 to 9"):
        load("mnist", tmp_path)


@pytest.mark.realdata
def test_the_real_mnist() -> None:
    dataset = load("mnist", None)
    assert (len(dataset.train), len(dataset.test)) == (60_000, 10_000)
    assert dataset.train.labels[:12].tolist() == MNIST_LABELS
    inputs = dataset.train.fetch(torch.arange(60_000))[0]
    assert inputs.mean().item() == pytest.approx(0.1307, abs=1e-4)
    assert inputs.std().item() == pytest.approx(0.3081, abs=1e-4)
