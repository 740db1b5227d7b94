"""The viewer's page while the server answers slowly: keys hit what is shown, and no late answer wins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from viewer_tab import Tab

from bigbatch.viewer.server import Server

# every request waits for `delay(path)` milliseconds; counts requests for thumbnails that are under way
SLOW_FETCH = """
  globalThis.delay = () => 0;
  globalThis.sprites = { now: 0, most: 0, all: 0 };
  const fetchNow = globalThis.fetch;
  globalThis.fetch = async (path, options) => {
    const isSprite = String(path).includes("/sprite");
    if (isSprite) {
      sprites.all += 1;
      sprites.most = Math.max(sprites.most, ++sprites.now);
    }
    try {
      const wait = delay(String(path));
      if (wait) await new Promise((done) => setTimeout(done, wait));
      return await fetchNow(path, options);
    } finally {
      if (isSprite) sprites.now -= 1;
    }
  };
"""
SHOWN = "cells => cells.map((cell) => Number(cell.dataset.sample))"


@pytest.fixture
def slow_page(page: Any) -> Any:
    page.add_init_script(SLOW_FETCH)
    return page


@pytest.fixture
def server(kept: Path, serve: Callable[..., Server]) -> Server:
    return serve(kept)


def entries(server: Server) -> list[tuple[str, list[int]]]:
    return [(entry.action, entry.samples.tolist()) for entry in server.documents[0].snapshot().overrides]


def test_each_key_is_for_the_sample_that_is_highlighted(slow_page: Any, server: Server) -> None:
    tab = Tab(slow_page, server.url)
    press = slow_page.keyboard.press
    press("g")
    press("ArrowRight")
    tab.settled()
    order = slow_page.eval_on_selector_all(".cell:not([hidden])", SHOWN)
    slow_page.evaluate("() => { delay = (path) => path.endsWith('/overrides') ? 300 : 0 }")
    # all three in one frame: the slowest case for the page
    slow_page.evaluate(
        """() => {
          const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
          for (const key of "kkd") press(key);
        }"""
    )
    assert tab.focus() == order[2]
    assert slow_page.evaluate("s => viewer.document.override[s]", order[0]) == 1  # before the server has answered
    assert entries(server) == []
    tab.settled()
    assert entries(server) == [("keep", [order[0]]), ("keep", [order[1]]), ("drop", [order[2]])]
    press("u")
    tab.settled()
    assert slow_page.evaluate("s => viewer.document.override[s]", order[2]) == -1
    assert slow_page.evaluate("s => viewer.document.override[s]", order[1]) == 1


def test_an_override_that_is_not_saved_is_taken_back(slow_page: Any, server: Server) -> None:
    tab = Tab(slow_page, server.url)
    slow_page.keyboard.press("n")
    sample = tab.focus()
    slow_page.evaluate("() => { delay = (path) => { if (path.endsWith('/overrides')) throw new TypeError('lost') } }")
    slow_page.keyboard.press("k")
    slow_page.keyboard.press("n")
    tab.settled()
    slow_page.wait_for_selector("#banner:visible")
    assert slow_page.evaluate("s => viewer.document.override[s]", sample) == -1
    assert entries(server) == []


def test_the_colours_are_those_of_the_control(slow_page: Any, server: Server) -> None:
    tab = Tab(slow_page, server.url)
    slow_page.evaluate("() => { delay = (path) => path.endsWith('/clusters') ? 200 : 0 }")
    for last in ("class", "cluster"):
        for choice in ("cluster", "class", last):
            slow_page.select_option("#colour-by", choice)
        slow_page.wait_for_function("last => viewer.colourBy === last && viewer.dirty.size === 0", arg=last)
        slow_page.evaluate("() => fetch('/').then(() => new Promise((done) => setTimeout(done, 400)))")
        tab.settled()
        assert slow_page.evaluate("() => viewer.colourBy") == slow_page.input_value("#colour-by") == last


def test_the_mode_is_the_one_chosen_last(slow_page: Any, server: Server) -> None:
    tab = Tab(slow_page, server.url)
    tab.type_number("#min-samples-number", 9)
    slow_page.wait_for_function("() => viewer.document.settings.min_samples === 9")
    slow_page.evaluate("() => { delay = (path) => path.includes('eps_star') ? 200 : 0 }")
    slow_page.click("#mode [data-mode=paper]")
    slow_page.click("#mode [data-mode=manual]")
    slow_page.evaluate("() => new Promise((done) => setTimeout(done, 400))")
    tab.settled()
    assert slow_page.evaluate("() => viewer.document.settings.mode") == "manual"
    assert server.documents[0].settings.mode == "manual"
    assert server.documents[0].settings.min_samples == 9


def test_fifty_thousand_images_do_not_delay_a_key(slow_page: Any, tmp_path: Path, serve: Callable[..., Server]) -> None:
    rng = np.random.default_rng(0)
    count = 50_000
    path = tmp_path / "many.npz"
    np.savez(
        path,
        map=rng.normal(size=(count, 2)).astype(np.float32),
        labels=rng.integers(0, 10, count),
        images=rng.integers(0, 255, (count, 24, 24, 3), dtype=np.uint8),
    )
    server = serve(path)
    tab = Tab(slow_page, server.url)
    slow_page.evaluate("() => { delay = (path) => path.includes('/sprite') ? 50 : 0 }")
    slow_page.keyboard.press("n")
    slow_page.hover("#gallery")
    for _ in range(40):
        slow_page.mouse.wheel(0, 900)
    pressed = []
    for key in "kkk":
        pressed.append(tab.focus())
        slow_page.keyboard.press(key)
        assert slow_page.evaluate("s => viewer.document.override[s]", pressed[-1]) == 1
        slow_page.wait_for_function("s => viewer.focus !== s", arg=pressed[-1])
    tab.settled()
    assert entries(server) == [("keep", [sample]) for sample in pressed]
    sprites = slow_page.evaluate("() => sprites")
    assert sprites["most"] == 1  # never a queue of them
    assert sprites["all"] <= 60
    slow_page.wait_for_function(
        """() => [...document.querySelectorAll(".cell:not([hidden])")].every(
             (cell) => cell.querySelector("canvas").dataset.drawn === cell.dataset.sample)"""
    )
