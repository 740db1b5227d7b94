"""What is taken away is what was shown, whole or not at all."""

from __future__ import annotations

import csv
import io
import os

import numpy as np
import pytest
import torch
from PIL import Image
from viewer_pages import digits, full_disk, make_kept, open_page, page_mask

from bigbatch import datasets, filters, parts

COUNT, COLOURS = 24, 3


@pytest.fixture
def pictures(tmp_path):
    """A folder of pictures in two classes and many shapes, filtered by ready features."""
    random = np.random.default_rng(0)
    for part in ("train", "val"):
        for index in range(COUNT):
            path = tmp_path / "set" / part / f"class {index % 2}" / ("deep" * (index % 3)) / f"{index:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = random.integers(0, 256, (20 + index, 90 - index, COLOURS), np.uint8)
            Image.fromarray(pixels).save(path)
    np.save(tmp_path / "features.npy", random.normal(size=(COUNT, 4)).astype(np.float32))
    options = {"min_samples": 3, "drop": 0.25, "dataset.folder": tmp_path / "set"}
    return make_kept(tmp_path / "kept.npz", "imagefolder", str(tmp_path / "features.npy"), **options)


def test_overrides_and_settings_rebuild_bit_for_bit(kept):
    with open_page(kept) as page:
        page.set(drop=0.3, min_samples=4)
        page.post("0/overrides", {"action": "keep", "reason": "fine", "samples": list(range(0, 300, 2))})
        page.post("0/overrides", {"action": "drop", "samples": list(range(200, 260))})
        page.post("0/overrides", {"action": "reset", "samples": [0, 230]})
        page.post("0/overrides", {"action": "drop", "samples": list(range(300, 900))})
        page.post("0/undo")
        shown_mask = page_mask(page)
        result, manifest = page.exported("kept")
        assert [path.name for path in (result, manifest)] == ["kept-1.npz", "kept-1.json"]
        assert result.parent == kept.parent / "kept.exports"
        downloaded = page.get("0/exports/kept-1.npz")
        assert downloaded.content == result.read_bytes()
        assert [path.name for path in page.exported("kept")] == ["kept-2.npz", "kept-2.json"]
    saved = filters.load(result)
    assert np.array_equal(saved.mask.numpy(), shown_mask)
    assert torch.equal(filters.rebuild(result).mask, saved.mask)
    assert [entry["reason"] for entry in saved.manifest.overrides] == ["fine", "", "", ""]
    assert [entry.get("undone", False) for entry in saved.manifest.overrides] == [False, False, False, True]
    with open_page(result) as page:  # an export is a filter like any other
        assert np.array_equal(page_mask(page), shown_mask)


def test_a_class_is_not_exported_away(kept):
    with open_page(kept) as page:
        zeros = np.flatnonzero(page.column("label", "<u2") == 0)
        page.post("0/overrides", {"action": "drop", "samples": zeros.tolist()})
        answer = page.post("0/export", {"kind": "kept"})
        assert answer.status_code == 422
        assert "every sample of class 0" in answer.json()["problem"]
        assert not (kept.parent / "kept.exports").exists()


def test_the_table_has_a_row_a_sample(kept):
    with open_page(kept) as page:
        page.post("0/overrides", {"action": "keep", "samples": [3]})
        page.post("0/overrides", {"action": "drop", "samples": [4]})
        mask = page_mask(page)
        (path,) = page.exported("csv")
    saved = filters.load(kept)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = ["sample", "file", "class", "kept", "override", "eps_star", "prediction", "confidence", "loss"]
    assert list(rows[0]) == columns
    assert [int(row["sample"]) for row in rows] == list(range(1437))
    assert [row["kept"] == "1" for row in rows] == mask.tolist()
    assert [float(row["eps_star"]) for row in rows] == saved.score.tolist()
    assert [int(row["prediction"]) for row in rows] == saved.arrays["prediction"].tolist()
    assert np.array_equal([np.float32(row["loss"]) for row in rows], saved.arrays["loss"])
    assert [rows[index]["override"] for index in (2, 3, 4)] == ["", "keep", "drop"]


def test_a_copy_of_images_in_memory_is_one_file(kept):
    with open_page(kept) as page:
        mask = page_mask(page)
        (path,) = page.exported("copy")
        again = page.post("0/export", {"kind": "copy"})
        assert again.status_code == 422
        assert "exists already" in again.json()["problem"]
    with np.load(path) as copy:
        assert np.array_equal(copy["images"][..., 0], digits().train.images[:, 0].numpy()[mask])
        assert np.array_equal(copy["labels"], digits().train.labels.numpy()[mask])
        assert np.array_equal(copy["sample"], np.flatnonzero(mask))


def test_a_full_disk_leaves_no_half_export(kept):
    with open_page(kept) as page:
        page.post("0/overrides", {"action": "drop", "samples": [1]})
        for kind in ("kept", "csv", "copy"):
            with full_disk(kept.with_suffix(".json"), 0):
                answer = page.post("0/export", {"kind": kind})
            assert answer.status_code == 422, kind
            assert "could not be written" in answer.json()["problem"]
            assert os.listdir(kept.parent / "kept.exports") == []


def test_out_is_where_exports_go_and_the_log_stays_with_its_file(kept, tmp_path):
    out = tmp_path / "elsewhere"
    with open_page(kept, out=out) as page:
        page.post("0/overrides", {"action": "drop", "samples": [1]})
        assert [path.parent for path in page.exported("kept")] == [out, out]
    assert kept.with_name("kept.view.jsonl").exists()
    assert torch.equal(filters.rebuild(out / "kept-1.npz").mask, filters.load(out / "kept-1.npz").mask)


def test_pictures_in_files_are_seen_named_and_copied(pictures, tmp_path):
    dataset = datasets.load(parts.configure("datasets", filters.load(pictures).manifest.dataset.config))
    with open_page(pictures) as page:
        about = page.about()
        assert about["images"] == {"width": 64, "height": 64, "across": 16, "per_sprite": 48, "shrunk": True}
        for sample in (0, 5):
            full = Image.open(io.BytesIO(page.get(f"0/image/{sample}").content))
            assert np.array_equal(np.asarray(full), np.asarray(Image.open(dataset.train.paths[sample])))
        sheet = Image.open(io.BytesIO(page.get("0/sprite?samples=0,1").content))
        assert sheet.size == (2 * 64, 64)
        mask = page_mask(page)
        (table,) = page.exported("csv")
        with table.open(newline="", encoding="utf-8") as file:
            assert [row["file"] for row in csv.DictReader(file)] == dataset.train.paths
        (copy,) = page.exported("copy")
        assert page.get("0/exports/kept-copy").status_code == 404  # a folder is not downloaded
    kept_paths = [path for path, kept in zip(dataset.train.paths, mask, strict=True) if kept]
    expected = {os.path.relpath(path, tmp_path / "set") for path in kept_paths}
    copied = [path for path in copy.rglob("*") if path.is_file()]
    assert {os.path.relpath(path, copy) for path in copied} == expected
    assert 0 < len(expected) < COUNT
    for path in copied:
        assert path.read_bytes() == (tmp_path / "set" / path.relative_to(copy)).read_bytes()
    assert all(os.path.exists(path) for path in dataset.train.paths)  # copied, never moved


def test_a_broken_picture_is_named_and_spares_the_others(pictures, tmp_path):
    broken = tmp_path / "set" / "train" / "class 0" / "06.png"
    content = broken.read_bytes()
    with open_page(pictures) as page:
        broken.write_bytes(content[:60] + bytes(len(content) - 60))  # while it is open
        paths = datasets.load(parts.configure("datasets", filters.load(pictures).manifest.dataset.config)).train
        sample = paths.paths.index(str(broken))
        answer = page.get(f"0/image/{sample}")
        assert answer.status_code == 422
        assert "06.png is not a complete image" in answer.json()["problem"]
        sheet = np.asarray(Image.open(io.BytesIO(page.get(f"0/sprite?samples={sample},0").content)))
        assert (sheet[30, 30] == 128).all()
        assert page.get(f"0/image/{sample + 1}").status_code == 200


def test_without_its_dataset_the_page_says_why_there_are_no_images(pictures, tmp_path):
    (tmp_path / "set").rename(tmp_path / "moved")
    with open_page(pictures) as page:
        about = page.about()
        assert about["images"] is None
        assert any("There are no images: there is no folder" in note for note in about["notes"])
        assert page.get("0/sprite?samples=0,1").status_code == 404
        assert page.get("0/image/0").json()["problem"].startswith("There are no images")
        assert page.post("0/overrides", {"action": "drop", "samples": [1]}).status_code == 200
        result = page.exported("kept")[0]
        assert not filters.load(result).mask[1]
        assert page.post("0/export", {"kind": "copy"}).status_code == 422
    (tmp_path / "moved").rename(tmp_path / "set")
    (tmp_path / "set" / "train" / "class 0" / "00.png").unlink()
    with open_page(pictures) as page:
        assert any("another hash" in note for note in page.about()["notes"])


def own_kept(tmp_path, kind):
    features = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    np.save(tmp_path / "features.npy", features)
    options = {"drop": 0.25, "dataset.kind": kind}
    return make_kept(tmp_path / "kept.npz", "viewer_pages:own_dataset", str(tmp_path / "features.npy"), **options)


def test_pictures_without_files_are_copied_as_numbered_files(tmp_path):
    with open_page(own_kept(tmp_path, "drawn")) as page:
        assert np.asarray(Image.open(io.BytesIO(page.get("0/image/31").content))).max() == 31
        mask = page_mask(page)
        (copy,) = page.exported("copy")
    found = {path.relative_to(copy).as_posix() for path in copy.rglob("*.png")}
    # by number: this dataset's classes are called 'even/' and '..'
    assert found == {f"train/{sample % 2:05d}/{sample:08d}.png" for sample in np.flatnonzero(mask)}


def test_samples_of_ones_own_are_shown_as_they_are_fetched(tmp_path):
    with open_page(own_kept(tmp_path, "numbers")) as page:
        shown_pixels = np.asarray(Image.open(io.BytesIO(page.get("0/image/3").content)))
        assert np.array_equal(
            shown_pixels, (np.linspace(0, 1, 12, dtype=np.float32) * 255).astype(np.uint8).reshape(3, 4)
        )
        answer = page.post("0/export", {"kind": "copy"})
        assert answer.status_code == 422
        assert "cannot be copied" in answer.json()["problem"]
