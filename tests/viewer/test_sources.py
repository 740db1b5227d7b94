"""What can be viewed, and what is said of what cannot."""

from __future__ import annotations

import io
import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from viewer_pages import OpenedDocuments, make_kept, open_documents, open_page, page_mask

from bigbatch import filters
from bigbatch.curation import FilterRequest, filter_dataset
from bigbatch.errors import Notice, Problem


def blobs(classes=3, each=50):
    random = np.random.default_rng(2)
    labels = np.tile(np.arange(classes), each)
    places = random.normal(size=(len(labels), 2)) * 2 + 30 * labels[:, None]
    return places.astype(np.float32), labels


def refused(*paths):
    with pytest.raises(Problem) as problem, open_documents(*paths):
        pass
    return str(problem.value)


def test_features_that_bring_a_map(tmp_path):
    places, labels = blobs()
    images = np.random.default_rng(1).integers(0, 256, (150, 6, 5, 3), np.uint8)
    names = np.array(["ant", "bee", "cat"])
    path = tmp_path / "features.npz"
    np.savez(path, map=places, labels=labels, images=images, classes=names)
    with open_page(path) as page:
        about = page.about()
        assert about["classes"] == ["ant", "bee", "cat"]
        assert (about["images"]["width"], about["images"]["height"]) == (5, 6)
        assert any("the map is the one in the file" in note for note in about["notes"])
        assert np.array_equal(page.column("position", "<f4").reshape(-1, 2), places)
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(page.get("0/image/9").content))), images[9])
        page.set(mode="manual", eps=[1.0, 1.2, 0.9], min_samples=4)
        page.post("0/overrides", {"action": "keep", "samples": [0, 1, 2]})
        mask = page_mask(page)
        result = page.exported("kept")[0]
        (copy,) = page.exported("copy")
    saved = filters.load(result)
    assert 0 < (~saved.mask).sum() < 100
    assert np.array_equal(saved.mask.numpy(), mask)
    assert torch.equal(filters.rebuild(result).mask, saved.mask)
    assert json.loads(result.with_suffix(".json").read_text())["info"]["map"]["reducer"] == "given"
    with np.load(copy) as kept:
        assert np.array_equal(kept["images"], images[mask])
        assert np.array_equal(kept["map"], places[mask])
        assert kept["classes"].tolist() == ["ant", "bee", "cat"]
    with open_page(result) as page:  # what was exported is viewed like any filter, with its images
        assert np.array_equal(page_mask(page), mask)
        assert page.get("0/image/9").status_code == 200


def test_features_and_their_exports_are_found_from_another_folder(tmp_path, monkeypatch):
    places, labels = blobs()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    np.savez("features.npz", map=places, labels=labels, images=np.zeros((150, 4, 4), np.uint8))
    with open_page(Path("features.npz")) as page:
        page.exported("kept")
    (tmp_path / "here").rename(tmp_path / "there")
    monkeypatch.chdir(tmp_path)
    result = Path("there/features.exports/features-1.npz")
    assert torch.equal(filters.rebuild(result).mask, filters.load(result).mask)
    with open_page(result) as page:
        assert page.get("0/image/0").status_code == 200


def test_features_without_a_map_go_through_the_filters_stages(tmp_path):
    places, labels = blobs()
    path = tmp_path / "features.npz"
    np.savez_compressed(path, features=np.hstack([places, -places, places**2]), labels=labels)
    with open_page(path) as page:
        about = page.about()
        assert about["classes"] == ["0", "1", "2"]
        assert about["images"] is None
        assert any("stages of the network filter" in note for note in about["notes"])
        result = page.exported("kept")[0]
    saved = filters.load(result)
    assert saved.manifest.info["map"]["reducer"] == "tsne"
    assert torch.equal(filters.rebuild(result).mask, saved.mask)


def test_distances_are_taken_where_the_filter_took_them(tmp_path):
    path = make_kept(tmp_path / "kept.npz", components=6)  # the map shows two of six components
    saved = filters.load(path)
    with open_page(path) as page:
        assert np.array_equal(page.column("position", "<f4").reshape(-1, 2), saved.arrays["points"][:, :2])
        expected = filters.eps_star(saved.arrays["points"], saved.arrays["label"], 9)
        assert np.array_equal(page.column("eps_star", "<f8", "?min_samples=9"), expected)
        page.set(min_samples=9)
        result = page.exported("kept")[0]
    assert torch.equal(filters.rebuild(result).mask, filters.load(result).mask)


def test_what_an_earlier_filter_dropped_was_not_considered(kept, tmp_path):
    path = make_kept(tmp_path / "second.npz", after=kept)
    first = filters.load(kept).mask.numpy()
    with open_page(path) as page:
        assert np.array_equal(page.column("considered", "u1") == 1, first)
        assert np.isinf(page.column("eps_star", "<f8")[~first]).all()
        assert np.isnan(page.column("position", "<f4").reshape(-1, 2)[~first]).all()
        out = int(np.flatnonzero(~first)[0])
        assert page.get(f"0/neighbours/{out}").json() == []
        page.post("0/overrides", {"action": "keep", "samples": [out]})
        assert np.array_equal(page_mask(page), filters.load(page.exported("kept")[0]).mask.numpy())


def test_a_folder_opens_its_newest_result(kept):
    with open_page(kept.parent) as page:
        assert page.about()["name"] == "kept.npz"
    filters.save(kept.parent / "newer.npz", filters.load(kept))
    with pytest.warns(Notice, match=r"newer.npz is the newest; name kept.npz"):
        opened = OpenedDocuments([kept.parent])
    with closing(opened):
        assert opened.documents[0].path.name == "newer.npz"


def test_what_cannot_be_viewed_is_refused_in_a_sentence(kept, tmp_path):
    whole = kept.read_bytes()
    for size in (0, 100, len(whole) // 2, len(whole) - 10):
        (tmp_path / "cut.npz").write_bytes(whole[:size])
        assert "cut.npz cannot be read" in refused(tmp_path / "cut.npz")
    assert "there is no" in refused(tmp_path / "nothing.npz")
    (tmp_path / "empty").mkdir()
    assert "has no .npz" in refused(tmp_path / "empty")
    assert "given twice" in refused(kept, kept)
    assert "got 3" in refused(kept, tmp_path / "cut.npz", tmp_path / "cut.npz")
    filter_dataset(FilterRequest("digits", out=tmp_path / "random.npz", filter_name="random", quiet=True))
    assert "'random' makes no map" in refused(tmp_path / "random.npz")
    with np.load(kept) as arrays:
        early = json.loads(str(arrays["manifest"]))
        del early["working_folder"]
        np.savez(tmp_path / "early.npz", **{**arrays, "manifest": np.array(json.dumps(early))})
    assert "no manifest of format 2" in refused(tmp_path / "early.npz")
    np.savez(tmp_path / "bare.npz", mask=np.ones(5, bool))
    assert "no manifest" in refused(tmp_path / "bare.npz")


def test_features_of_the_wrong_shape_are_refused(tmp_path):
    places, labels = blobs()
    path = tmp_path / "features.npz"
    for arrays, problem in (
        ({"other": labels}, "give a filter's result"),
        ({"map": places}, "no 'labels'"),
        ({"map": places, "labels": labels.astype(float)}, "one number per sample"),
        ({"map": places, "labels": labels - 1}, "number them from 0"),
        ({"map": places, "labels": labels, "classes": np.array(["a", "b"])}, "number them from 0"),
        ({"map": places, "labels": labels, "classes": np.array(["a", "a", "b"])}, "number them from 0"),
        ({"map": places[:-1], "labels": labels}, "give 150 x 2 numbers"),
        ({"map": places * np.nan, "labels": labels}, "not finite"),
        ({"map": places, "labels": labels, "images": np.zeros((150, 4), np.uint8)}, "give uint8 of 150"),
        ({"map": places, "labels": labels, "images": np.zeros((150, 4, 4))}, "give uint8 of 150"),
        ({"map": places, "labels": np.array(labels, object)}, "Python objects"),
        ({"features": places[:-1], "labels": labels}, "one row per sample"),
    ):
        np.savez(path, **arrays)
        assert problem in refused(path)
    assert not list(tmp_path.glob("*.jsonl"))


def test_filters_of_different_datasets_are_not_compared(kept, tmp_path):
    places, labels = blobs()
    np.savez(tmp_path / "features.npz", map=places, labels=labels)
    assert "different datasets" in refused(kept, tmp_path / "features.npz")
    with open_documents(kept):  # and nothing was left open
        pass


def test_two_networks_features_of_one_set_are_compared(tmp_path):
    places, labels = blobs()
    for name, own in (("a", places), ("b", places[:, ::-1])):
        np.savez(tmp_path / f"{name}.npz", map=own, labels=labels)
    with open_documents(tmp_path / "a.npz", tmp_path / "b.npz") as opened:
        first, second = (document.kept_mask() for document in opened.documents)
        assert np.array_equal(first, second)
