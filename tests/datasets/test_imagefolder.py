from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from bigbatch import parts, rng
from bigbatch.datasets import Dataset, imagefolder
from bigbatch.datasets import load as load_dataset
from bigbatch.datasets.reading.lazy_images import _centre_box, _random_box
from bigbatch.errors import Problem


def picture(key: int, width: int, height: int) -> Image.Image:
    """Smooth enough for JPEG, different everywhere."""
    small = rng.integers(256, key, np.arange(4 * 4 * 3)).astype(np.uint8).reshape(4, 4, 3)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def write(root: Path, test_name: str = "val") -> Path:
    suffixes = {"cat": "jpg", "dog": "png", "eel": "webp"}
    for part, count in (("train", 4), (test_name, 2)):
        for label, (name, suffix) in enumerate(suffixes.items()):
            folder = root / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                picture(100 * label + number, 20 + 3 * number, 30 - 4 * number).save(folder / f"{number}.{suffix}")
    return root


def load(folder: Path, **options: Any) -> Dataset:
    options = {"size": 8, "resize": 10, **options}
    return load_dataset(parts.configure("datasets", {"name": "imagefolder", "folder": str(folder), **options}))


@pytest.mark.parametrize("test_name", ["val", "test"])
def test_names_become_labels_in_alphabetical_order(tmp_path: Path, test_name: str) -> None:
    dataset = load(write(tmp_path, test_name))
    assert load(tmp_path, workers=3).workers == 3
    assert dataset.classes == ("cat", "dog", "eel")
    assert dataset.train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert dataset.test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert isinstance(dataset.train, imagefolder.FolderImages)
    assert dataset.train.paths[5] == str(tmp_path / "train/dog/1.png")
    inputs, labels = dataset.train.fetch(torch.tensor([5, 0]), epoch=0)
    assert (inputs.shape, inputs.dtype, labels.tolist()) == ((2, 3, 8, 8), torch.float32, [1, 0])


@pytest.mark.parametrize("augment", ["random_resized_crop", "minimal"])
def test_rows_are_pure_and_augmented(tmp_path: Path, augment: str) -> None:
    samples = load(write(tmp_path), augment=augment).train
    whole = samples.fetch(torch.arange(12), seed=3, epoch=1)[0]
    order = rng.permutation(12, 4)
    copy = pickle.loads(pickle.dumps(samples))  # noqa: S301 - what a worker process gets
    assert torch.equal(torch.cat([copy.fetch(part, seed=3, epoch=1)[0] for part in order.split(5)]), whole[order])
    assert not torch.equal(whole, samples.fetch(torch.arange(12), seed=3, epoch=2)[0])


def test_evaluation_scales_the_shorter_side_and_cuts_the_middle(tmp_path: Path) -> None:
    write(tmp_path)
    # 20 x 40, upper half black, lower half white, scaled by 1/2 to 10 x 20; the middle 8 rows are 6..13
    stripes = np.zeros((40, 20, 3), np.uint8)
    stripes[20:] = 255
    Image.fromarray(stripes).save(tmp_path / "val/dog/0.png")
    inputs = load(tmp_path, mean=(0, 0, 0), std=(1, 1, 1)).test.fetch(torch.tensor([2]))[0][0]
    assert inputs[:, :3].max() == 0
    assert inputs[:, 5:].min() == 1


def test_normalisation_is_per_channel(tmp_path: Path) -> None:
    write(tmp_path)
    Image.new("RGB", (10, 10), (255, 51, 0)).save(tmp_path / "val/dog/0.png")
    inputs = load(tmp_path, mean=(0.5, 0.1, 0.2), std=(0.25, 0.5, 0.1)).test.fetch(torch.tensor([2]))[0][0]
    assert inputs[:, 4, 4].tolist() == pytest.approx([2.0, 0.2, -2.0], abs=1e-6)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1"])
def test_every_kind_of_image_becomes_rgb(tmp_path: Path, mode: str) -> None:
    write(tmp_path)
    picture(7, 20, 20).convert(mode).save(tmp_path / f"val/dog/0.{'jpg' if mode == 'CMYK' else 'png'}")
    assert load(tmp_path).test.fetch(torch.arange(6))[0].shape[1:] == (3, 8, 8)


def test_flip_mirrors_about_half(tmp_path: Path) -> None:
    write(tmp_path)
    samples = load(tmp_path, augment="none").train
    plain = samples.fetch(torch.arange(12))[0]
    mirrored = 0
    for epoch in range(10):
        for row, original in zip(samples.fetch(torch.arange(12), epoch=epoch)[0], plain, strict=True):
            assert torch.equal(row, original) or torch.equal(row, original.flip(-1))
            mirrored += torch.equal(row, original.flip(-1))
    assert 40 <= mirrored <= 80


def test_crop_boxes_keep_to_area_aspect_and_image() -> None:
    boxes = np.array([_random_box((300, 200), sample, 0, 0) for sample in range(500)])
    widths, heights = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert boxes.min() >= 0
    assert boxes[:, 2].max() <= 300
    assert boxes[:, 3].max() <= 200
    areas, aspects = widths * heights / 60_000, widths / heights
    assert (areas.min() > 0.078, areas.max() <= 1.0) == (True, True)
    assert (aspects.min() > 0.74, aspects.max() < 1.35) == (True, True)
    assert len({tuple(box) for box in boxes.tolist()}) > 490
    # so long that no attempt fits: the middle, 4/3 as long as high
    assert _random_box((3000, 3), 0, 0, 0) == _centre_box(3000, 3) == (1498, 0, 1502, 3)


@pytest.mark.parametrize("damage", ["cut", "text", "empty"])
def test_a_broken_picture_is_named(tmp_path: Path, damage: str) -> None:
    path = write(tmp_path) / "train/cat/2.jpg"
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[: len(whole) // 2], "text": b"not found", "empty": b""}[damage])
    samples = load(tmp_path).train
    samples.fetch(torch.tensor([0, 1, 3]), epoch=0)
    with pytest.raises(Problem, match=r"train/cat/2\.jpg is not a complete image .*: replace or remove it"):
        samples.fetch(torch.tensor([1, 2]), epoch=0)


def test_hash_is_over_names_labels_and_contents_wherever_the_folder_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    assert load(a).hash == load(b).hash
    (b / "train/cat/0.jpg").rename(b / "train/cat/00.jpg")
    renamed = load(b).hash
    with (b / "train/dog/1.png").open("ab") as file:
        file.write(b"\0")
    longer = load(b).hash
    assert len({load(a).hash, renamed, longer}) == 3
    path = b / "train/dog/0.png"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # as long as before
    path.write_bytes(content)
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))  # a coarse clock might not have moved
    assert load(b).hash not in (longer, renamed)
    changed = load(b).hash
    monkeypatch.setattr("hashlib.file_digest", lambda *_: pytest.fail("a file was read that has not changed"))
    assert load(b).hash == changed


def test_the_folder_may_lie_below_the_data_folder(tmp_path: Path) -> None:
    write(tmp_path / "flowers")
    config = parts.configure("datasets", {"name": "imagefolder", "folder": "flowers"})
    assert len(load_dataset(config, tmp_path).train) == 12


def test_missing_folders_and_classes_are_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"there is no folder .*nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(Problem, match="needs the folders train and val"):
        load(tmp_path)
    (write(tmp_path) / "val/fox").mkdir()
    with pytest.raises(Problem, match=r"val has the class 'fox', which .*train lacks"):
        load(tmp_path)


def test_a_crop_larger_than_the_scaled_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="size 12 cannot be cut out of resize 10"):
        load(tmp_path, size=12)
