"""The viewer's page in a real browser: two filters, two tabs, a server that dies, an address that is no good."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from viewer_tab import Library, Process, Tab, make_filter

from bigbatch.viewer.server import Server


@pytest.fixture(scope="session")
def other(made: Path) -> Path:
    return make_filter(made.with_name("other.npz"), "reducer=none", "components=2", "drop=0.2")


@pytest.fixture
def process(kept: Path) -> Iterator[Callable[..., Process]]:
    """Start `bigbatch view`; whatever still runs at the end is killed."""
    started: list[Process] = []

    def start(port: int = 0) -> Process:
        started.append(Process(kept, port))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def test_two_filters_side_by_side(
    open_tab: Callable[..., Tab], kept: Path, other: Path, library: Library, page: Any
) -> None:
    tab = open_tab(kept, other)
    a, b = ~library.saved.mask.numpy(), ~Library(other).saved.mask.numpy()
    assert (tab.inner_dropped(0) == a).all()
    assert (tab.inner_dropped(1) == b).all()
    page.click("#tab-compare")
    tab.settled()
    groups = [~a & ~b, ~a & b, a & ~b, a & b]
    told = [page.inner_text(f"[data-group='{index}'] b") for index in range(4)]
    assert told == [f"{group.sum():,}" for group in groups]
    assert page.inner_text("#jaccard-kept") == f"{groups[0].sum() / (~a | ~b).sum():.3f}"
    assert page.inner_text("#jaccard-dropped") == f"{groups[3].sum() / (a | b).sum():.3f}"

    page.click("[data-group='1']")  # kept by A only
    tab.settled()
    assert tab.inner_selected() == np.flatnonzero(groups[1]).tolist()
    for index in range(2):  # linked: both maps fade the same samples
        faded = page.evaluate("d => Array.from(viewer.maps[d].scene.faded)", index)
        assert (np.array(faded, dtype=bool) == ~groups[1]).all()

    # a box drawn in B makes B the one that the controls are for
    page.keyboard.press("b")
    places = tab.pixels(1)
    x, y = np.median(places, axis=0)
    tab.draw([(x - 40, y - 40), (x + 40, y + 40)])
    inside = ((places >= [x - 40, y - 40]) & (places <= [x + 40, y + 40])).all(1)
    assert tab.inner_selected() == np.flatnonzero(inside).tolist()
    assert tab.counts() == library.counts(b)
    page.click("#selection [data-action=drop]")
    tab.settled()
    assert (tab.inner_dropped(1) == (b | inside)).all()
    assert (tab.inner_dropped(0) == a).all()


def test_a_second_tab_sees_what_the_first_one_does(open_tab: Callable[..., Tab], library: Library, page: Any) -> None:
    first = open_tab()
    page.wait_for_function(
        "() => performance.getEntriesByType('resource').some((one) => one.name.includes('/overrides'))"
    )
    second_page = page.context.new_page()
    second = Tab(second_page, page.url + "#")  # no token: the browser's session is shared
    first.type_number("#drop-number", 30)
    expected = library.counts(library.dropped(mode="fraction", drop=0.3))
    second_page.wait_for_function("() => viewer.document.settings.drop === 0.3")
    second.settled()
    assert second.counts() == first.counts() == expected
    second_page.keyboard.press("n")
    sample = second.focus()
    second_page.keyboard.press("k")
    page.wait_for_function("sample => viewer.document.override[sample] === 1", arg=sample)
    first.settled()
    assert first.counts() == second.counts() != expected
    first.wait_told("Another tab")


def test_an_override_hears_of_settings_that_another_tab_has_made_before_it(
    open_tab: Callable[..., Tab], page: Any
) -> None:
    first = open_tab()
    second_page = page.context.new_page()
    second_page.route("**/api/changes*", lambda route: None)  # news come too late
    second = Tab(second_page, page.url + "#")
    first.type_number("#drop-number", 30)
    second_page.keyboard.press("n")
    sample = second.focus()
    second_page.keyboard.press("k")
    second.settled()
    page.wait_for_function("sample => viewer.document.override[sample] === 1", arg=sample)
    first.settled()
    assert second_page.evaluate("() => viewer.document.settings.drop") == 0.3
    assert first.counts() == second.counts()


def test_no_sample_has_the_picture_of_another(kept: Path, page: Any, process: Callable[..., Process]) -> None:
    server = process()
    tab = Tab(page, server.address)
    page.wait_for_selector(".cell canvas[data-drawn]")
    drawn = "cells => cells.map((cell) => [cell.dataset.sample, cell.querySelector('canvas').dataset.drawn ?? null])"
    server.kill()
    page.wait_for_selector("#banner:visible")
    # as in a large dataset: the thumbnails that are needed now are not here yet
    page.evaluate("() => viewer.panels.find((panel) => panel.cells).pictures.held.clear()")
    before = page.eval_on_selector(".cell canvas", "canvas => canvas.toDataURL()")
    page.select_option("#gallery-sort", "sample")
    tab.settled()
    found = page.eval_on_selector_all(".cell:not([hidden])", drawn)
    assert found
    assert all(shown in (None, sample) for sample, shown in found)
    assert page.eval_on_selector(".cell canvas", "canvas => canvas.toDataURL()") != before

    server = process(server.port)
    page.wait_for_selector("#banner:has-text('was restarted')")
    Tab(page.context.new_page(), server.address)
    page.wait_for_selector("#banner", state="hidden")
    page.wait_for_function(
        """() => [...document.querySelectorAll(".cell:not([hidden])")].every(
             (cell) => cell.querySelector("canvas").dataset.drawn === cell.dataset.sample)"""
    )


def test_a_killed_server_loses_nothing(
    kept: Path, library: Library, page: Any, process: Callable[..., Process]
) -> None:
    server = process()
    tab = Tab(page, server.address)
    tab.type_number("#drop-number", 15)
    page.keyboard.press("n")
    page.keyboard.press("k")
    tab.settled()
    before = tab.inner_dropped()
    kept_by_hand = page.evaluate("() => viewer.document.override.indexOf(1)")
    assert kept_by_hand >= 0

    server.kill()
    page.wait_for_selector("#banner:visible")
    assert "does not answer" in page.inner_text("#banner")
    assert "saved" in page.inner_text("#banner")

    server = process(server.port)
    page.wait_for_selector("#banner:has-text('was restarted')")
    new_page = page.context.new_page()
    new = Tab(new_page, server.address)
    assert (new.inner_dropped() == before).all()
    page.wait_for_selector("#banner", state="hidden")  # the old tab hears of the new session
    assert (tab.inner_dropped() == before).all()

    # what cannot be saved is said, and sent when the server is there again
    server.kill()
    page.wait_for_selector("#banner:visible")
    tab.type_number("#drop-number", 40)
    assert "Not saved" in page.inner_text("#saved")
    server = process(server.port)
    new_page.wait_for_selector("#banner:has-text('was restarted')")
    new_page.goto(server.address)  # pasted into the tab that is open: the part after # alone is new
    page.wait_for_function("() => viewer.document.unsaved === null")
    tab.settled()
    at_forty = library.dropped(mode="fraction", drop=0.4)
    at_forty[kept_by_hand] = False
    assert (tab.inner_dropped() == at_forty).all()
    new_page.wait_for_function("() => viewer.document.settings.drop === 0.4")
    new.settled()
    assert (new.inner_dropped() == at_forty).all()
    # a browser writes down itself that nobody answered; the page has no error of its own
    assert [said for said in page.complaints.errors if "Failed to load resource" not in said] == []


def test_addresses_that_are_no_good_say_what_to_do(serve: Callable[..., Server], kept: Path, page: Any) -> None:
    server = serve(kept)
    address = server.url
    base = address.split("#")[0]
    page.goto(base)
    page.wait_for_selector("body[data-stage=refused]")
    assert "address that 'bigbatch view' printed" in page.inner_text("#start")
    page.goto(base + "#token=wrong")  # the part after # alone has changed: the page has to notice by itself
    page.wait_for_selector("#start:has-text('used already')")
    Tab(page, address)
    stranger = page.context.browser.new_context()
    second_use = stranger.new_page()
    second_use.goto(address)
    second_use.wait_for_selector("#start:has-text('used already')")
    stranger.close()
    Tab(page, address)  # where the session still is, a used address does no harm
    assert [said for said in page.complaints.errors if "Failed to load resource" not in said] == []
