"""Every route gives what the page was promised, and the library's numbers."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.cluster import DBSCAN
from viewer_pages import FLAT, digits, open_documents, open_page, page_mask

from bigbatch import filters, parts
from bigbatch.viewer import points


@pytest.fixture
def page(kept):
    with open_page(kept) as page:
        yield page


def library_mask(**options):
    """What the filter itself keeps with these settings, from the network on."""
    about = {"name": "network", "network": "viewer_pages:Net", **FLAT, **options}
    return parts.find("filters", "network").keep(digits(), parts.configure("filters", about)).mask.numpy()


def bits_of(samples, count):
    flags = np.zeros(count, np.uint8)
    flags[samples] = 1
    return base64.b64encode(np.packbits(flags, bitorder="little").tobytes()).decode()


def test_a_document_says_what_it_is(page, kept):
    answer = page.get("documents").json()
    (about,) = answer["documents"]
    assert (about["id"], about["name"], about["samples"], about["dataset"]) == ("0", "kept.npz", 1437, "digits")
    assert about["classes"] == [str(number) for number in range(10)]
    assert about["network"] == "viewer_pages:Net"
    assert about["revision"] == 0
    assert about["min_samples_max"] == 50
    assert about["images"] == {"width": 8, "height": 8, "across": 16, "per_sprite": 256, "shrunk": False}
    made = filters.load(kept).manifest.info["eps"]
    settings = {"mode": "fraction", "min_samples": 5, "drop": 0.1, "per_class": True}
    assert about["settings"] == settings | {"eps": [made[name] for name in about["classes"]]}


def test_columns_are_the_files_arrays(page, kept):
    saved = filters.load(kept)
    assert np.array_equal(page.column("position", "<f4").reshape(-1, 2), saved.arrays["map"])
    assert np.array_equal(page.column("label", "<u2"), saved.arrays["label"])
    assert np.array_equal(page.column("eps_star", "<f8"), saved.score.numpy())
    assert page.column("considered", "u1").all()
    assert (page.column("override", "i1") == -1).all()
    for name, dtype in (("prediction", "<i4"), ("confidence", "<f4"), ("loss", "<f4")):
        assert np.array_equal(page.column(name, dtype), saved.arrays[name])
    assert page.get("0/columns/secret").status_code == 404
    assert page.get("1/columns/label").status_code == 404


def test_noise_at_any_min_samples_is_scikit_learns(page):
    places = page.column("position", "<f4").reshape(-1, 2).astype(float)
    labels = page.column("label", "<u2")
    for min_samples in (1, 2, 9, 50):
        eps_star = page.column("eps_star", "<f8", f"?min_samples={min_samples}")
        for index in (0, 7):
            members = labels == index
            # equal eps* differ in their last bits; with one sample all are zero
            eps = max(float(np.quantile(eps_star[members], 0.8)) * (1 + 1e-9), 1e-300)
            noise = DBSCAN(eps=eps, min_samples=min_samples).fit_predict(places[members]) == -1
            assert np.array_equal(eps < eps_star[members], noise)
    for wrong in ("0", "51", "x", "9" * 40):
        assert page.get(f"0/columns/eps_star?min_samples={wrong}").status_code == 422


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "fraction", "drop": 0.25, "per_class": True, "min_samples": 3},
        {"mode": "fraction", "drop": 0.2, "per_class": False, "min_samples": 12},
        {"mode": "paper", "min_samples": 5},
        {"mode": "manual", "min_samples": 8, "eps": {str(number): 0.4 + 0.02 * number for number in range(10)}},
    ],
    ids=lambda settings: settings["mode"],
)
def test_page_export_and_library_keep_the_same_samples(page, settings):
    given = dict(settings)
    if "eps" in given:
        given["eps"] = list(given["eps"].values())
    assert page.set(**given).json() == {"revision": 1}
    expected = library_mask(**settings)
    assert 1000 < expected.sum() < 1400
    assert np.array_equal(page_mask(page), expected)
    result, manifest = page.exported("kept")
    assert np.array_equal(filters.load(result).mask.numpy(), expected)
    assert torch.equal(filters.rebuild(result).mask, torch.from_numpy(expected))
    assert torch.equal(filters.rebuild(manifest).mask, torch.from_numpy(expected))


def test_settings_that_the_filter_refuses_are_refused(page):
    before = page.about()["settings"]
    eps = before["eps"]
    for changes in (
        {"mode": "paper", "min_samples": 6},
        {"mode": "manual", "eps": eps[:-1]},
        {"mode": "manual", "eps": [0.0, *eps[1:]]},
        {"mode": "manual", "eps": [None, *eps[1:]]},
        {"mode": "other"},
        {"drop": 1.0},
        {"drop": -0.1},
        {"min_samples": 0},
        {"min_samples": 51},
        {"strange": 1},
    ):
        answer = page.set(**changes)
        assert answer.status_code == 422, changes
        assert answer.json()["problem"]
    assert page.about()["settings"] == before
    assert page.about()["revision"] == 0
    assert page.client.post("/api/0/settings", content=b"{").status_code == 400
    assert page.client.post("/api/0/settings", content=b'{"eps": [NaN]}').status_code == 422


def test_overrides_win_are_logged_undone_and_redone(page):
    filter_mask = page_mask(page)
    dropped = np.flatnonzero(~filter_mask)[:3].tolist()
    kept_ones = np.flatnonzero(filter_mask)[:400]
    first = page.post("0/overrides", {"action": "keep", "reason": "legible", "samples": [*dropped, dropped[0]]}).json()
    assert first["revision"] == 1
    entry = page.get("0/overrides").json()["entries"][0]
    assert (entry["count"], entry["action"]) == (3, "keep")
    page.post("0/overrides", {"action": "drop", "bits": bits_of(kept_ones, 1437)})
    page.post("0/overrides", {"action": "reset", "samples": [dropped[0], int(kept_ones[0])]})

    expected = filter_mask.copy()
    expected[dropped[1:]] = True
    expected[kept_ones[1:]] = False
    assert np.array_equal(page_mask(page), expected)
    log = page.get("0/overrides").json()
    shown_entries = [(entry["action"], entry["count"], entry["reason"], entry["undone"]) for entry in log["entries"]]
    assert shown_entries == [("keep", 3, "legible", False), ("drop", 400, "", False), ("reset", 2, "", False)]
    assert (log["revision"], log["can_undo"], log["can_redo"]) == (3, True, False)

    assert [page.post("0/undo").json()["revision"] for _ in range(3)] == [4, 5, 6]
    assert page.post("0/undo").status_code == 409
    assert np.array_equal(page_mask(page), filter_mask)
    assert page.post("0/redo").json() == {"revision": 7}
    assert (page.column("override", "i1") == 1).sum() == 3
    page.post("0/overrides", {"action": "drop", "samples": [5]})  # a new decision: what was undone stays undone
    assert page.post("0/redo").status_code == 409
    log = page.get("0/overrides").json()
    assert [entry["undone"] for entry in log["entries"]] == [False, True, True, False]
    assert [entry["id"] for entry in log["entries"]] == [0, 1, 2, 3]


def test_wrong_overrides_change_nothing(page):
    for body in (
        {"action": "keep", "samples": [1437]},
        {"action": "keep", "samples": [-1]},
        {"action": "keep", "samples": [10**30]},
        {"action": "keep", "samples": "x" * 1_000_000},
        {"action": "keep", "samples": [1.5]},
        {"action": "keep", "samples": []},
        {"action": "keep"},
        {"action": "burn", "samples": [1]},
        {"action": "keep", "samples": [1], "path": "/etc"},
        {"action": "keep", "samples": [1], "reason": "x" * 1001},
        {"action": "keep", "bits": "!"},
        {"action": "keep", "bits": bits_of([1], 1400)},
        {"action": "keep", "bits": base64.b64encode(b"\xff" * 180).decode()},  # 1,440 bits
        [1],
    ):
        answer = page.post("0/overrides", body)
        assert answer.status_code == 422, body
        assert 0 < len(answer.json()["problem"]) <= 500
    half_a_character = b'{"action": "keep", "samples": [1], "reason": "\\ud800"}'
    assert page.client.post("/api/0/overrides", content=half_a_character).status_code == 422
    assert page.about()["revision"] == 0


def test_clusters_are_scikit_learns_within_each_class(page, monkeypatch):
    places, labels = page.column("position", "<f4").reshape(-1, 2).astype(float), page.column("label", "<u2")
    eps = [radius * (1 + 1e-9) for radius in page.about()["settings"]["eps"]]  # equal eps* differ in their last bits
    answer = page.post("0/clusters", {"min_samples": 5, "eps": eps})
    found = np.frombuffer(answer.content, "<i4")
    for index in range(10):
        members = labels == index
        expected = DBSCAN(eps=eps[index], min_samples=5).fit_predict(places[members])
        assert np.array_equal(found[members], expected)
    for wrong in (eps[:-1], ["x", *eps[1:]], {}):
        assert page.post("0/clusters", {"min_samples": 5, "eps": wrong}).status_code == 422
    wrong_number = page.client.post("/api/0/clusters", content=b'{"min_samples": 5, "eps": [NaN]}')
    assert wrong_number.status_code == 422
    monkeypatch.setattr(points, "_MAX_PAIRS", 10_000)  # all 143 samples of a class within reach are 20,449 pairs
    refused = page.post("0/clusters", {"min_samples": 5, "eps": [1e9] * 10})
    assert refused.status_code == 422
    assert "million pairs of neighbours" in refused.json()["problem"]


def test_neighbours_are_the_nearest_of_any_class(page):
    places = page.column("position", "<f4").reshape(-1, 2).astype(float)
    distances = np.linalg.norm(places - places[17], axis=1)
    found = page.get("0/neighbours/17?count=6").json()
    assert [near["sample"] for near in found] == np.argsort(distances)[1:7].tolist()
    assert np.allclose([near["distance"] for near in found], np.sort(distances)[1:7])
    assert len(page.get("0/neighbours/17").json()) == 8
    assert page.get("0/neighbours/1437").status_code == 404
    assert page.get("0/neighbours/17?count=0").status_code == 422


def test_sprites_and_images_are_those_of_the_samples(page):
    samples = [1436, 0, *range(30, 62), 1023]
    answer = page.get(f"0/sprite?samples={','.join(map(str, samples))}")
    assert answer.headers["content-type"] == "image/png"
    sheet = np.asarray(Image.open(io.BytesIO(answer.content)))
    assert sheet.shape == (3 * 8, 16 * 8)  # 35 thumbnails, 16 in a row
    images = digits().train.images[:, 0].numpy()
    for place, sample in enumerate(samples):
        expected = images[sample].astype(int) * 255 // 16
        down, right = divmod(place, 16)
        assert np.array_equal(sheet[8 * down : 8 * down + 8, 8 * right : 8 * right + 8], expected)
    full = page.get("0/image/1436")
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(full.content))), images[1436].astype(int) * 255 // 16)
    again = page.get("0/image/1436", headers={"if-none-match": full.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert page.get("0/image/1437").status_code == 404


@pytest.mark.parametrize("samples", ["", "1437", "-1", "--5", "1,,2", "1_0", "٣", ",".join(["1"] * 257)])
def test_a_sprite_of_impossible_samples_is_refused(page, samples):
    answer = page.get("0/sprite", params={"samples": samples})
    assert answer.status_code in (404, 422)
    assert answer.json()["problem"]


@pytest.mark.parametrize("text", ["--5", "-", "5-", "²", "9" * 30])
def test_a_query_that_is_not_a_whole_number_is_refused(page, text):
    answer = page.get("0/columns/eps_star", params={"min_samples": text})
    assert answer.status_code == 422
    assert "is not a whole number" in answer.json()["problem"]


def test_unknown_paths_and_methods_are_answered_in_a_sentence(page):
    for answer, status in (
        (page.get("0/nothing"), 404),
        (page.get("0/settings"), 405),
        (page.post("documents"), 405),
        (page.get("0/exports/kept-1.npz"), 404),
    ):
        assert answer.status_code == status
        assert answer.json()["problem"]


def test_a_fault_of_the_servers_own_is_a_sentence_too(kept, monkeypatch, capfd):
    with open_documents(kept) as opened:
        monkeypatch.setattr(opened.documents[0], "column", lambda *_: 1 / 0)
        with opened.page(raise_server_exceptions=False) as page:
            answer = page.get("0/columns/label")
    assert answer.status_code == 500
    assert "ZeroDivisionError" in answer.json()["problem"]
    assert "ZeroDivisionError" in capfd.readouterr().err  # the terminal has the traceback


def test_two_filters_are_compared(kept, tmp_path):
    again = filters.decide_again(filters.load(kept), drop=0.3)
    other = filters.save(tmp_path / "other.npz", again)
    a, b = filters.load(kept).mask, other.mask
    with open_documents(kept, tmp_path / "other.npz") as opened, opened.page() as page:
        assert [document.kept_mask().tolist() for document in opened.documents] == [a.tolist(), b.tolist()]
        page.post("1/overrides", {"action": "drop", "samples": [0]})
        assert [page.about(number)["revision"] for number in (0, 1)] == [0, 1]
        assert page.get("changes?since=0,0").json() == {"revisions": [0, 1]}
        assert page.get("changes?since=0").status_code == 422
