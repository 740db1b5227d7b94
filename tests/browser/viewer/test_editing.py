"""The viewer's page in a real browser: a person selects, overrides, takes back, and takes away the result."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from viewer_tab import Library, Tab

from bigbatch import filters


def around(places: np.ndarray, sample: int, radius: float) -> list[tuple[float, float]]:
    """The corners of a diamond."""
    x, y = places[sample]
    return [(x + radius, y), (x, y + radius), (x - radius, y), (x, y - radius), (x + radius, y)]


def inner_sample(places: np.ndarray) -> int:
    """The one nearest to the middle of the map's panel, where there is room to draw."""
    return int(np.abs(places - [610, 400]).sum(1).argmin())


def test_a_lasso_selects_what_it_surrounds_and_fades_the_rest(open_tab: Callable[..., Tab], page: Any) -> None:
    tab = open_tab()
    places = tab.pixels()
    sample = inner_sample(places)
    page.click("#tool [data-tool=lasso]")
    tab.draw(around(places, sample, 60))
    from_middle = np.abs(places - places[sample]).sum(1)
    selected = np.zeros(len(places), dtype=bool)
    selected[tab.inner_selected()] = True
    assert selected[sample]
    assert selected[from_middle < 56].all()  # a hand's width of pixels is left to the edge itself
    assert not selected[from_middle > 64].any()
    assert f"{selected.sum():,} selected" in page.inner_text("#selection-count")
    faded = np.array(page.evaluate("() => Array.from(viewer.maps[0].scene.faded)"), dtype=bool)
    assert (faded == ~selected).all()
    assert page.input_value("#gallery-show") == "selected"
    assert page.inner_text("#gallery-count") == f"{selected.sum():,}"
    page.keyboard.press("Escape")
    tab.settled()
    assert not page.is_visible("#selection")
    assert page.input_value("#gallery-show") == "dropped"


def test_a_box_selects_shift_adds_and_alt_takes_away(open_tab: Callable[..., Tab], page: Any) -> None:
    tab = open_tab()
    places = tab.pixels()
    x, y = places[inner_sample(places)]

    def within(left: float, top: float, right: float, bottom: float) -> set[int]:
        return set(np.flatnonzero(((places >= [left, top]) & (places <= [right, bottom])).all(1)).tolist())

    page.keyboard.press("b")
    tab.draw([(x - 50.5, y - 40.5), (x + 50.5, y + 40.5)])
    first = within(x - 50.5, y - 40.5, x + 50.5, y + 40.5)
    assert set(tab.inner_selected()) == first
    assert first
    page.keyboard.down("Shift")
    tab.draw([(x - 50.5, y + 20.5), (x + 90.5, y + 90.5)])
    page.keyboard.up("Shift")
    both = first | within(x - 50.5, y + 20.5, x + 90.5, y + 90.5)
    assert set(tab.inner_selected()) == both
    page.keyboard.down("Alt")
    tab.draw([(x - 20.5, y - 20.5), (x + 20.5, y + 20.5)])
    page.keyboard.up("Alt")
    assert set(tab.inner_selected()) == both - within(x - 20.5, y - 20.5, x + 20.5, y + 20.5)


def test_overrides_win_are_logged_undone_done_again_and_kept(
    open_tab: Callable[..., Tab], library: Library, page: Any
) -> None:
    tab = open_tab()
    places = tab.pixels()
    page.keyboard.press("b")
    x, y = places[inner_sample(places)]
    tab.draw([(x - 60, y - 60), (x + 60, y + 60)])
    chosen = tab.inner_selected()
    by_filter = ~library.saved.mask.numpy()
    by_hand = by_filter.copy()
    by_hand[chosen] = True
    assert (by_hand != by_filter).any()

    page.fill("#reason", "smudged")
    page.click("#selection [data-action=drop]")
    tab.settled()
    assert tab.counts() == library.counts(by_hand)
    page.click("#tab-log")
    assert f"dropped {len(chosen):,} samples" in page.inner_text("#log-panel")
    assert "smudged" in page.inner_text("#log-panel")

    # noise of the whole filter changes, the overridden samples do not
    tab.type_number("#drop-number", 30)
    at_thirty = library.dropped(mode="fraction", drop=0.3)
    at_thirty[chosen] = True
    assert tab.counts() == library.counts(at_thirty)
    tab.type_number("#drop-number", 10)

    page.click("#undo")
    tab.settled()
    assert tab.counts() == library.counts(by_filter)
    assert "(undone)" in page.inner_text("#log-panel")
    assert page.is_disabled("#undo")
    page.click("#redo")
    tab.settled()
    assert tab.counts() == library.counts(by_hand)
    page.click("#selection [data-action=reset]")
    tab.settled()
    assert tab.counts() == library.counts(by_filter)
    page.click("#undo")
    tab.settled()
    assert (tab.inner_dropped() == by_hand).all()

    tab.reload()
    assert (tab.inner_dropped() == by_hand).all()
    page.click("#tab-log")
    assert page.locator(".log li").count() == 2


def test_a_reason_goes_with_its_selection(open_tab: Callable[..., Tab], page: Any) -> None:
    tab = open_tab()
    press = page.keyboard.press
    press("n")
    press("x")
    page.fill("#reason", "smudged")
    press("Escape")
    press("d")
    press("Escape")  # the selection is gone, and its reason with it
    press("n")
    press("k")
    tab.settled()
    assert page.evaluate("() => viewer.document.log.entries.map((entry) => entry.reason)") == ["smudged", ""]


def test_the_gallery_keeps_and_drops_with_its_buttons(
    open_tab: Callable[..., Tab], library: Library, page: Any
) -> None:
    tab = open_tab()
    by_filter = ~library.saved.mask.numpy()
    first = int(page.get_attribute(".cell", "data-sample"))
    page.hover(f"#sample-{first}")
    page.click(f"#sample-{first} [data-action=keep]")
    tab.settled()
    expected = by_filter.copy()
    expected[first] = False
    assert (tab.inner_dropped() == expected).all()
    assert tab.counts() == library.counts(expected)
    page.select_option("#gallery-show", "overridden")
    assert page.inner_text("#gallery-count") == "1"


def test_what_is_exported_is_what_is_seen(
    open_tab: Callable[..., Tab], library: Library, kept: Path, page: Any, tmp_path: Path
) -> None:
    tab = open_tab()
    tab.type_number("#drop-number", 20)
    page.keyboard.press("n")
    page.keyboard.press("k")
    tab.settled()
    dropped = tab.inner_dropped()
    assert dropped.sum() == library.dropped(mode="fraction", drop=0.2).sum() - 1

    def export(kind: str) -> None:
        page.click("#export")
        page.click(f"#export-menu [data-kind={kind}]")

    export("kept")
    told = tab.wait_told("kept-1.npz")
    made = next(path for path in kept.parent.rglob("kept-1.npz"))
    assert str(made.parent) in told
    assert (filters.load(made).mask.numpy() == ~dropped).all()
    assert (filters.rebuild(made).mask.numpy() == ~dropped).all()

    with page.expect_download() as download:
        export("csv")
    download.value.save_as(tmp_path / "samples.csv")
    with (tmp_path / "samples.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["kept"] in ("1", "True", "true") for row in rows] == (~dropped).tolist()

    for kind, begins in (("png", b"\x89PNG\r\n\x1a\n"), ("svg", b"<svg")):
        with page.expect_download() as download:
            export(kind)
        download.value.save_as(tmp_path / f"map.{kind}")
        content = (tmp_path / f"map.{kind}").read_bytes()
        assert content.startswith(begins)
    drawn = content.decode()
    assert f"{(~dropped).sum():,} of 1,437 kept" in drawn
    assert f"dropped: {dropped.sum()}" in drawn
    assert len(re.findall(r"M[\d.]+ [\d.]+h0", drawn)) == 1437  # every point is a dot


def test_the_table_is_that_of_the_paper(open_tab: Callable[..., Tab], library: Library, page: Any) -> None:
    tab = open_tab()
    page.click("#tab-summary")
    tab.settled()
    kept, dropped = library.counts(~library.saved.mask.numpy())[0]
    row = page.locator("#summary-panel table").first.locator("tbody td").all_inner_texts()
    assert row[1:] == [f"{100 * kept / 1437:.2f} %", f"{kept:,}", f"{dropped:,}"]


def test_thousands_of_samples_without_images(open_tab: Callable[..., Tab], tmp_path: Path, page: Any) -> None:
    draw = np.random.default_rng(0)
    labels = np.arange(3000) % 3
    places = draw.normal(0, 1, (3000, 2)) + 4 * labels[:, None]
    path = tmp_path / "points.npz"
    np.savez(path, map=places.astype(np.float32), labels=labels, classes=np.array(["a", "b", "c"]))
    tab = open_tab(path)
    assert [kept + dropped for kept, dropped in tab.counts()] == [3000, 1000, 1000, 1000]
    assert tab.counts()[0][1] > 0
    page.select_option("#gallery-show", "kept")
    page.keyboard.press("Escape")
    page.keyboard.press("a")  # more than are sent by name: they go as a bitmask
    tab.settled()
    assert len(tab.inner_selected()) == tab.counts()[0][0] > 2000
    page.click("#selection [data-action=keep]")
    tab.settled()
    tab.type_number("#drop-number", 50)
    page.keyboard.press("Escape")
    before = tab.counts()
    assert before[0][1] < 400  # what was kept by hand stays, whatever the share
    tab.reload()
    assert tab.counts() == before


@pytest.mark.parametrize("width", [900, 420])
def test_narrow_windows_have_everything_too(open_tab: Callable[..., Tab], page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    open_tab()
    assert page.evaluate("() => document.scrollingElement.scrollWidth") <= width
    for name in ("#eps", "#class-list", ".overlay", "#gallery", "#export"):
        page.locator(name).scroll_into_view_if_needed()
        box = page.locator(name).bounding_box()
        assert box["width"] > 20
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width
