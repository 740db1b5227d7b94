from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bigbatch import rng
from bigbatch.datasets import Dataset, cifar10
from bigbatch.datasets.reading.images import InMemoryImages
from bigbatch.errors import Problem
from bigbatch.parts import configure

NAMES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def rows(number: int, records: int = 20) -> np.ndarray[Any, np.dtype[np.uint8]]:
    batch = rng.integers(256, number, np.arange(records * 3073)).astype(np.uint8).reshape(records, 3073)
    batch[:, 0] = np.arange(records) % 10
    return batch


def write_binary(folder: Path) -> Path:
    (folder / "cifar-10-batches-bin").mkdir(parents=True)
    for number, name in enumerate(NAMES):
        rows(number).tofile(folder / f"cifar-10-batches-bin/{name}.bin")
    return folder


def write_pickled(folder: Path) -> Path:
    (folder / "cifar-10-batches-py").mkdir(parents=True)
    for number, name in enumerate(NAMES):
        batch = rows(number)
        content = {b"data": batch[:, 1:].copy(), b"labels": batch[:, 0].tolist(), b"batch_label": b"x"}
        (folder / f"cifar-10-batches-py/{name}").write_bytes(pickle.dumps(content, protocol=2))
    return folder


def load(folder: Path | None, **options: Any) -> Dataset:
    config = configure("datasets", {"name": "cifar10", **options})
    assert isinstance(config, cifar10.Config)
    return cifar10.load(config, folder)


def images(samples: Any) -> torch.Tensor:
    assert isinstance(samples, InMemoryImages)
    return samples.images


def test_a_record_is_a_label_and_three_planes(tmp_path: Path) -> None:
    dataset = load(write_binary(tmp_path), records_per_file=20)
    assert (len(dataset.train), len(dataset.test), dataset.sample_shape) == (100, 20, (3, 32, 32))
    third_of_second_file = rows(1)[2]
    assert dataset.train.labels[22] == third_of_second_file[0]
    # red row 0, green row 1, blue row 31
    stored = images(dataset.train)[22]
    assert stored[0, 0].tolist() == third_of_second_file[1:33].tolist()
    assert stored[1, 1].tolist() == third_of_second_file[1 + 1024 + 32 : 1 + 1024 + 64].tolist()
    assert stored[2, 31].tolist() == third_of_second_file[-32:].tolist()


def test_both_layouts_are_one_dataset(tmp_path: Path) -> None:
    binary = load(write_binary(tmp_path / "a"), records_per_file=20)
    pickled = load(write_pickled(tmp_path / "b"), records_per_file=20)
    assert binary.hash == pickled.hash
    assert torch.equal(images(binary.test), images(pickled.test))
    assert torch.equal(binary.test.labels, pickled.test.labels)


def test_crop_28_is_random_in_training_and_central_in_evaluation(tmp_path: Path) -> None:
    dataset = load(write_binary(tmp_path), records_per_file=20, crop=28, mean=(0, 0, 0), std=(1, 1, 1))
    assert dataset.sample_shape == (3, 28, 28)
    plain = dataset.test.fetch(torch.arange(20))[0]
    torch.testing.assert_close(plain, images(dataset.test)[:, :, 2:30, 2:30] / 255)
    # every crop is a window of its image or of its mirror image: nothing was padded
    stored = images(dataset.train) / 255
    for sample, crop in enumerate(dataset.train.fetch(torch.arange(100), epoch=0)[0]):
        both = torch.stack([stored[sample], stored[sample].flip(-1)])
        windows = both.unfold(2, 28, 1).unfold(3, 28, 1).permute(0, 2, 3, 1, 4, 5)
        assert (windows - crop).abs().amax(dim=(3, 4, 5)).min() < 1e-6


def test_without_augmentation_training_sees_the_plain_images(tmp_path: Path) -> None:
    train = load(write_binary(tmp_path), records_per_file=20, augment=False, crop=28).train
    assert torch.equal(train.fetch(torch.arange(9), epoch=3)[0], train.fetch(torch.arange(9))[0])


def test_a_cut_file_is_refused_by_name_and_sizes(tmp_path: Path) -> None:
    path = write_binary(tmp_path) / "cifar-10-batches-bin/data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-3073])  # a whole record less: still a multiple of 3,073
    with pytest.raises(Problem, match=r"data_batch_3\.bin is not complete: expected 61,460 bytes, found 58,387"):
        load(tmp_path, records_per_file=20)
    with pytest.raises(Problem, match=r"data_batch_1\.bin is not complete: expected 30,730,000 bytes, found 61,460"):
        load(tmp_path)


def test_a_label_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    path = write_binary(tmp_path) / "cifar-10-batches-bin/test_batch.bin"
    path.write_bytes(b"\x0a" + path.read_bytes()[1:])
    with pytest.raises(Problem, match=r"test_batch\.bin has a label outside 0 to 9"):
        load(tmp_path, records_per_file=20)


def test_a_cut_or_short_pickle_is_refused(tmp_path: Path) -> None:
    path = write_pickled(tmp_path) / "cifar-10-batches-py/data_batch_2"
    whole = path.read_bytes()
    path.write_bytes(whole[:5000])
    with pytest.raises(Problem, match=r"data_batch_2 \(5,000 bytes\) is not a complete CIFAR-10 batch"):
        load(tmp_path, records_per_file=20)
    path.write_bytes(pickle.dumps({b"data": rows(1)[:19, 1:].copy(), b"labels": [0] * 19}, protocol=2))
    with pytest.raises(Problem, match=r"data_batch_2 is not complete: expected 20 records"):
        load(tmp_path, records_per_file=20)


class Attack:
    """Unpickled without care, it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_may_not_call_anything(tmp_path: Path) -> None:
    write_pickled(tmp_path)
    trace = tmp_path / "was-here"
    content = pickle.dumps({b"data": Attack(trace), b"labels": [0] * 20}, protocol=2)
    (tmp_path / "cifar-10-batches-py/data_batch_1").write_bytes(content)
    with pytest.raises(Problem, match="it needs "):
        load(tmp_path, records_per_file=20)
    assert not trace.exists()


def test_a_pickle_without_one_byte_does_not_crash_the_process(tmp_path: Path) -> None:
    """What is left was no state of a dtype, and numpy took it for one: SIGSEGV."""
    path = write_pickled(tmp_path) / "cifar-10-batches-py/data_batch_1"
    damaged = path.read_bytes().replace(b"|q\x13NNN", b"|qNN")
    assert len(damaged) == path.stat().st_size - 2
    path.write_bytes(damaged)
    assert len(load(tmp_path, records_per_file=20).train) == 100  # the bytes of the images are untouched


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02r\xff\xff\xff\xff.",  # a memo of four billion entries
        b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b".",  # a bytearray of a terabyte
        b"\x80\x04\x8e" + (1 << 40).to_bytes(8, "little") + b".",  # bytes, the same
        b"\x80\x02]q\x00h\x00a.",  # a list that holds itself
    ],
)
def test_a_hostile_pickle_is_refused_in_little_memory(tmp_path: Path, content: bytes) -> None:
    import tracemalloc

    path = write_pickled(tmp_path) / "cifar-10-batches-py/data_batch_1"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(Problem, match=r"data_batch_1 .* is not a complete CIFAR-10 batch"):
            load(tmp_path, records_per_file=20)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.realdata
def test_the_real_files() -> None:
    dataset = load(None)
    assert torch.bincount(dataset.train.labels).tolist() == [5000] * 10
    assert torch.bincount(dataset.test.labels).tolist() == [1000] * 10
    # the published means and deviations of the training pixels
    pixels = images(dataset.train).double() / 255
    torch.testing.assert_close(
        pixels.mean(dim=(0, 2, 3)), torch.tensor([0.4914, 0.4822, 0.4465]).double(), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(
        pixels.std(dim=(0, 2, 3)), torch.tensor([0.2470, 0.2435, 0.2616]).double(), atol=1e-4, rtol=0
    )
    assert dataset.train.labels[:5].tolist() == [6, 9, 9, 4, 1]  # frog, truck, truck, deer, automobile
