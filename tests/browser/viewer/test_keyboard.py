"""The viewer's page without a mouse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from viewer_tab import Library, Tab

from bigbatch import filters


def test_a_whole_review_by_keyboard(open_tab: Callable[..., Tab], library: Library, kept: Path, page: Any) -> None:
    tab = open_tab()
    press = page.keyboard.press

    # eps of class 2: to the list, three down, to the slider, a few steps left
    press("c")
    for _ in range(3):
        press("ArrowDown")
    press("s")
    for _ in range(25):
        press("ArrowLeft")
    tab.settled()
    assert page.evaluate("() => viewer.classShown") == 2
    by_eps = library.dropped(tab.inner_eps())
    assert tab.counts() == library.counts(by_eps)
    assert tab.mode() == "manual"

    # through the gallery: keep the first two, each time the next one comes by itself
    press("g")
    press("ArrowRight")
    tab.settled()
    order = page.eval_on_selector_all(".cell:not([hidden])", "cells => cells.map(cell => Number(cell.dataset.sample))")
    assert tab.focus() == order[0]
    assert str(order[0]) in page.inner_text("#card")
    for sample in order[:2]:
        assert tab.focus() == sample
        press("k")
        tab.settled()
    assert tab.focus() == order[2]
    expected = by_eps.copy()
    expected[order[:2]] = False
    assert (tab.inner_dropped() == expected).all()

    # back and forth
    press("Control+z")
    tab.settled()
    assert tab.inner_dropped()[order[1]]
    press("Control+Shift+z")
    tab.settled()
    assert (tab.inner_dropped() == expected).all()
    press("u")
    press("u")
    tab.settled()
    assert (tab.inner_dropped() == by_eps).all()
    press("Shift+u")
    press("Shift+u")
    tab.settled()
    assert (tab.inner_dropped() == expected).all()

    # select three with shift and drop them with a reason
    press("Escape")
    press("g")
    press("Home")
    press("Shift+ArrowRight")
    press("Shift+ArrowRight")
    tab.settled()
    assert len(tab.inner_selected()) == 3
    press("w")
    page.keyboard.type("unreadable")
    press("Escape")  # out of the field, with what was written
    page.keyboard.press("d")
    tab.settled()

    # and out with the result
    press("e")
    press("Enter")
    tab.wait_told("kept-1.npz")
    made = next(path for path in kept.parent.rglob("kept-1.npz"))
    assert (filters.load(made).mask.numpy() == ~tab.inner_dropped()).all()


def test_tab_reaches_every_control_and_shows_where_it_is(open_tab: Callable[..., Tab], page: Any) -> None:
    open_tab()
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        where = page.evaluate(
            """() => {
              const now = document.activeElement;
              const line = getComputedStyle(now);
              const seen = line.outlineStyle !== "none" && parseFloat(line.outlineWidth) >= 1;
              const name = now.getAttribute("aria-label") || now.title || now.labels?.[0]?.innerText || now.innerText;
              return [now.id || now.dataset.sort || now.dataset.tool || now.dataset.mode || now.className, seen, name];
            }"""
        )
        if reached and where[0] == reached[0][0]:
            break
        if where[0]:
            reached.append(where)
    names = [name for name, _, _ in reached]
    for wanted in (
        "export",
        "fraction",
        "drop",
        "eps",
        "eps-number",
        "min-samples",
        "class-list",
        "overlay",
        "gallery",
    ):
        assert wanted in names
    assert [name for name, seen, _ in reached if not seen] == []
    assert [name for name, _, said in reached if not said] == []


def test_the_overlay_lists_shortcuts_and_closes(open_tab: Callable[..., Tab], page: Any) -> None:
    tab = open_tab()
    page.keyboard.press("?")
    assert page.is_visible("#shortcuts")
    assert "keep the selection" in page.inner_text("#shortcuts")
    page.keyboard.press("Escape")
    page.wait_for_selector("#shortcuts", state="hidden")
    before = page.evaluate("() => viewer.maps[0].viewport.zoom")
    page.keyboard.press("o")
    page.keyboard.press("+")
    page.keyboard.press("ArrowLeft")
    tab.settled()
    assert page.evaluate("() => viewer.maps[0].viewport.zoom") > before
    page.keyboard.press("0")
    tab.settled()
    assert page.evaluate("() => viewer.maps[0].viewport.zoom") == 1
