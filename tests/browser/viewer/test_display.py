"""The viewer's page in a real browser: what it shows of a digits filter is what the library says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from viewer_tab import Library, Tab

from bigbatch import datasets, filters, parts
from bigbatch.recipes import load_run
from bigbatch.run import Run
from bigbatch.training.loop import train
from bigbatch.viewer.routes import STATIC
from bigbatch.viewer.server import Server

NOISE = (16, 18, 21)


def test_opens_with_the_counts_of_the_file_and_asks_nobody_else(
    open_tab: Callable[..., Tab], library: Library, page: Any
) -> None:
    tab = open_tab()
    assert tab.counts() == library.counts(~library.saved.mask.numpy())
    kept, dropped = tab.counts()[0]
    assert f"{kept:,} kept" in tab.totals()
    assert f"{dropped:,} dropped" in tab.totals()
    assert "#token" not in page.url
    assert all(
        address.startswith(("http://127.0.0.1:", "blob:http://127.0.0.1:")) for address in page.complaints.requests
    )
    size = page.evaluate("() => [document.scrollingElement.scrollWidth, document.scrollingElement.scrollHeight]")
    assert size == [1280, 720]
    assert not page.is_visible("#tab-accuracy")  # no runs, no chart
    preloaded = page.eval_on_selector_all(
        "[rel=modulepreload]", "links => links.map(link => link.getAttribute('href'))"
    )
    assert sorted([*preloaded, "main.js"]) == sorted(
        path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*.js")
    )


def test_noise_follows_eps_while_the_mouse_drags_it(open_tab: Callable[..., Tab], library: Library, page: Any) -> None:
    tab = open_tab()
    box = page.locator("#eps").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 30, middle)
    page.mouse.down()
    seen = []
    for across in (25, 60, 100):
        page.mouse.move(box["x"] + across, middle, steps=4)
        tab.settled()
        assert len(set(tab.inner_eps().values())) == 1  # one eps for all classes
        assert tab.counts() == library.counts(library.dropped(tab.inner_eps()))
        seen.append(tab.counts()[0])
    assert len(set(seen)) == 3
    page.mouse.up()
    tab.settled()
    assert tab.mode() == "manual"
    tab.reload()
    assert tab.counts()[0] == seen[-1]


def test_eps_of_one_class_leaves_the_others_alone(open_tab: Callable[..., Tab], library: Library, page: Any) -> None:
    tab = open_tab()
    before, counts = tab.inner_eps(), tab.counts()
    tab.choose_class(3)
    page.focus("#eps")
    for _ in range(40):
        page.keyboard.press("ArrowLeft")
    tab.settled()
    after = tab.inner_eps()
    assert after[3] < before[3]
    assert after | {3: before[3]} == before
    assert tab.counts() == library.counts(library.dropped(after))
    assert [a == b for a, b in zip(tab.counts()[1:], counts[1:], strict=True)] == [index != 3 for index in range(10)]


@pytest.mark.parametrize("min_samples", [2, 12])
def test_min_samples_is_the_librarys(
    open_tab: Callable[..., Tab], library: Library, page: Any, min_samples: int
) -> None:
    tab = open_tab()
    tab.type_number("#min-samples-number", min_samples)
    page.wait_for_function("m => viewer.document.settings.min_samples === m", arg=min_samples)
    tab.settled()
    assert tab.counts() == library.counts(library.dropped(mode="fraction", drop=0.1, min_samples=min_samples))


def test_modes_are_the_librarys(open_tab: Callable[..., Tab], library: Library, page: Any) -> None:
    tab = open_tab()
    tab.type_number("#drop-number", 25)
    assert tab.counts() == library.counts(library.dropped(mode="fraction", drop=0.25))
    page.uncheck("#per-class")
    tab.settled()
    assert tab.counts() == library.counts(library.dropped(mode="fraction", drop=0.25, per_class=False))
    tab.type_number("#min-samples-number", 9)
    page.wait_for_function("() => viewer.document.settings.min_samples === 9")
    page.click("#mode [data-mode=paper]")  # brings its own min_samples
    page.wait_for_function("() => viewer.document.settings.mode === 'paper'")
    tab.settled()
    assert page.input_value("#min-samples-number") == "5"
    assert tab.counts() == library.counts(library.dropped(mode="paper"))
    tab.type_number("#eps-number", 1.25)
    assert tab.mode() == "manual"
    by_hand = library.counts(library.dropped(dict.fromkeys(range(10), 1.25)))
    assert tab.counts() == by_hand
    tab.reload()
    assert tab.counts() == by_hand


@pytest.mark.parametrize("renderer", ["canvas", "webgl"])
def test_both_renderers_draw_noise_where_noise_is(
    open_tab: Callable[..., Tab], library: Library, page: Any, renderer: str
) -> None:
    tab = open_tab(query=f"?renderer={renderer}")
    assert page.get_attribute(".map", "data-renderer") == renderer
    for _ in range(6):
        page.keyboard.press("+")  # until points stand apart
    for drop in (10, 35):
        tab.type_number("#drop-number", drop)
        dropped = library.dropped(mode="fraction", drop=drop / 100)
        box, places = page.locator(".overlay").bounding_box(), tab.pixels()
        inside = (places > [box["x"], box["y"]]) & (places < [box["x"] + box["width"], box["y"] + box["height"]])
        alone = np.array([sample for sample in far_from_others(places, 20) if inside[sample].all()])
        assert dropped[alone].sum() >= 3
        assert (~dropped[alone]).sum() >= 3
        is_noise = [tuple(colour) == NOISE for colour in colours_at(page, alone)]
        assert is_noise == dropped[alone].tolist()


def far_from_others(places: np.ndarray, pixels: float) -> np.ndarray:
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    np.fill_diagonal(distance, np.inf)
    return np.flatnonzero(distance.min(1) > pixels)


def colours_at(page: Any, samples: np.ndarray) -> list[list[int]]:
    return page.evaluate(
        """samples => {
          const shown = document.querySelector(".points");
          const copy = Object.assign(document.createElement("canvas"), { width: shown.width, height: shown.height });
          const context = copy.getContext("2d");
          context.drawImage(shown, 0, 0);
          return samples.map((sample) => {
            const [x, y] = viewer.maps[0].pixelOf(sample);
            return Array.from(context.getImageData(Math.floor(x), Math.floor(y), 1, 1).data.slice(0, 3));
          });
        }""",
        samples.tolist(),
    )


def test_a_point_under_the_pointer_is_told_of(open_tab: Callable[..., Tab], library: Library, page: Any) -> None:
    tab = open_tab()
    places = tab.pixels()
    sample = int(far_from_others(places, 12)[0])
    with page.expect_response(lambda answer: "/neighbours/" in answer.url):
        page.mouse.move(*places[sample])
    page.wait_for_function("() => viewer.neighbours !== null && viewer.neighbours !== undefined")
    card = page.inner_text("#card")
    saved = library.saved
    assert f"sample {sample}" in card
    assert card.splitlines()[0] == library.classes[library.labels[sample]]
    predicted = library.classes[int(saved.arrays["prediction"][sample])]
    assert f"predicted\n{predicted} {100 * saved.arrays['confidence'][sample]:.0f} %" in card
    assert page.is_visible("#tooltip")
    near = np.linalg.norm(library.points - library.points[sample], axis=1)
    near[sample] = np.inf
    shown = page.evaluate("() => viewer.neighbours.samples")
    assert near[shown].tolist() == pytest.approx(np.sort(near)[:8].tolist(), rel=1e-5)
    assert page.locator(".near .thumb").count() == 8
    # the picture is that of this very sample: 8 x 8 pixels, white is 16
    drawn = page.eval_on_selector(
        ".large",
        "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).filter((_, i) => i % 4 === 0)",
    )
    image = datasets.load(parts.configure("datasets", "digits")).train.images[sample, 0].numpy()
    assert np.argsort(drawn, kind="stable").tolist() == np.argsort(image.ravel(), kind="stable").tolist()


def test_the_gallery_has_the_dropped_in_order_and_few_elements(
    open_tab: Callable[..., Tab], library: Library, page: Any
) -> None:
    tab = open_tab()
    dropped = np.flatnonzero(~library.saved.mask.numpy())
    score = library.saved.score.numpy()
    by_eps = sorted(dropped, key=lambda sample: (-score[sample], sample))
    assert page.evaluate("() => Array.from(viewer.panels.find((panel) => panel.list?.length).list)") == by_eps
    cells = "cells => cells.filter(cell => !cell.hidden).map(cell => Number(cell.dataset.sample))"
    assert page.eval_on_selector_all(".cell", cells)[:20] == by_eps[:20]
    page.select_option("#gallery-sort", "loss")
    loss = library.saved.arrays["loss"]
    by_loss = sorted(dropped, key=lambda sample: (-loss[sample], sample))
    assert page.eval_on_selector_all(".cell", cells)[:20] == by_loss[:20]
    tab.choose_class(7)
    of_class = [sample for sample in by_loss if library.labels[sample] == 7]
    assert page.inner_text("#gallery-count") == str(len(of_class))
    assert page.eval_on_selector_all(".cell", cells)[: len(of_class)] == of_class
    tab.choose_class(-1)
    page.select_option("#gallery-show", "kept")
    page.focus("#gallery")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    tab.settled()
    kept = np.flatnonzero(library.saved.mask.numpy())
    assert page.inner_text("#gallery-count") == f"{len(kept):,}"
    assert page.locator(".cell").count() < 80
    last = sorted(kept, key=lambda sample: (-loss[sample], sample))[-1]
    assert tab.focus() == last
    assert page.is_visible(f"#sample-{last}")


def test_the_map_moves_zooms_and_fits(open_tab: Callable[..., Tab], page: Any) -> None:
    tab = open_tab()
    fitted = tab.pixels()
    anchor = fitted[0]
    page.mouse.move(*anchor)
    page.mouse.wheel(0, -300)
    page.wait_for_function("() => viewer.maps[0].viewport.zoom > 1.9")
    zoomed = tab.pixels()
    assert zoomed[0] == pytest.approx(anchor, abs=1)  # what is under the pointer stays under it
    assert np.ptp(zoomed, axis=0) == pytest.approx(2 * np.ptp(fitted, axis=0), rel=1e-6)
    tab.draw([(600, 400), (640, 370)])
    assert tab.pixels() == pytest.approx(zoomed + np.array([40, -30]))
    page.click("#fit")
    tab.settled()
    assert tab.pixels() == pytest.approx(fitted)


def test_two_fingers_zoom_and_one_taps(open_tab: Callable[..., Tab], page: Any) -> None:
    tab = open_tab()
    fitted = tab.pixels()
    fingers = page.context.new_cdp_session(page)

    def touch(kind: str, *places: tuple[float, float]) -> None:
        points = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(places)]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", (580, 400), (640, 400))
    for apart in range(30, 61, 5):
        touch("touchMove", (610 - apart, 400), (610 + apart, 400))
    touch("touchEnd")
    page.wait_for_function("() => viewer.maps[0].viewport.zoom > 1.9")
    middle = np.array([610, 400])
    assert tab.pixels() == pytest.approx(middle + 2 * (fitted - middle), abs=3)
    places = tab.pixels()
    sample = int(np.abs(places - middle).sum(1).argmin())
    touch("touchStart", tuple(places[sample]))
    touch("touchEnd")
    page.wait_for_function("sample => viewer.focus === sample", arg=sample)


def test_clusters_have_colours_when_asked_for(open_tab: Callable[..., Tab], library: Library, page: Any) -> None:
    tab = open_tab()
    with page.expect_response(lambda answer: answer.url.endswith("/clusters")):
        page.select_option("#colour-by", "cluster")
    page.wait_for_function("() => viewer.maps[0].scene.clusters !== null")
    shown = np.array(page.evaluate("() => Array.from(viewer.maps[0].scene.clusters)"))
    assert ((shown < 0) == ~library.saved.mask.numpy()).all()
    tab.settled()


def test_dark_follows_the_system_until_somebody_chooses(open_tab: Callable[..., Tab], page: Any) -> None:
    page.emulate_media(color_scheme="dark")
    tab = open_tab()
    theme = "() => document.documentElement.dataset.theme"
    corner = """() => Array.from(document.querySelector(".points").getContext("2d").getImageData(1, 1, 1, 1).data)"""
    assert page.evaluate(theme) == "dark"
    assert page.evaluate(corner) == [18, 21, 26, 255]
    page.emulate_media(color_scheme="light")
    tab.settled()
    assert page.evaluate(theme) == "light"
    assert page.evaluate(corner) == [255, 255, 255, 255]
    page.click("#theme")
    tab.settled()
    assert page.evaluate(corner) == [18, 21, 26, 255]
    tab.reload()
    assert page.evaluate(theme) == "dark"


def test_the_arithmetic_of_shares_is_the_librarys(open_tab: Callable[..., Tab], page: Any) -> None:
    # ties, halves that Python rounds to even, infinities: what a digits filter alone would hardly show
    draw = np.random.default_rng(0)
    open_tab()
    for drop in (0.05, 0.1, 0.125, 0.25, 0.35, 0.5, 0.9, 0.995):
        labels = draw.integers(0, 4, 90)
        eps_star = draw.integers(1, 40, 90) / 7
        eps_star[draw.random(90) < 0.05] = np.inf
        for per_class in (True, False):
            expected = filters.decide_eps(eps_star, labels, "fraction", drop=drop, per_class=per_class)
            found = page.evaluate(
                """async ([label, epsStar, drop, perClass]) => {
                  const { epsForFraction, mergeSorted, sortEpsStarByClass } = await import("/state/decision.js");
                  const columns = { label, epsStar: epsStar.map((value) => value ?? Infinity) };
                  const sorted = sortEpsStarByClass(columns, 4);
                  return Array.from(epsForFraction(sorted, () => mergeSorted(sorted), drop, perClass));
                }""",
                [labels.tolist(), [x if np.isfinite(x) else None for x in eps_star.tolist()], drop, per_class],
            )
            assert found == [expected[index] for index in range(4)]


def test_accuracies_of_runs_are_drawn(kept: Path, made: Path, serve: Callable[..., Server], page: Any) -> None:
    runs_dir = made.parent / "runs"  # has the run that the filter's network was trained in: on everything
    full = json.loads(next(runs_dir.glob("*/summary.json")).read_text())
    run = Run(**(load_run("digits").model_dump(mode="json") | {"filter": str(kept)}))
    filtered = train(run, runs_dir=runs_dir, quiet=True)
    tab = Tab(page, serve(kept, runs_dir=runs_dir).url)
    page.wait_for_selector("#tab-accuracy:visible")
    page.click("#tab-accuracy")
    tab.settled()
    told = page.get_attribute("#accuracy-panel svg", "aria-label")
    for name, summary in (("this filter", filtered), ("full", full)):
        assert f"{name}: batch 16 {100 * summary['test_accuracy']:.2f} %" in told
    assert page.locator("#accuracy-panel circle").count() == 2
    assert page.complaints.errors == []


def test_a_phone_opens_the_page_at_its_top(kept: Path, chromium: Any, serve: Callable[..., Server]) -> None:
    context = chromium.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    Tab(page, serve(kept).url)
    assert page.evaluate("() => [scrollX, scrollY]") == [0, 0]
    assert page.evaluate("() => document.documentElement.scrollWidth") == 390
    context.close()


def test_totals_are_announced_once_per_change(open_tab: Callable[..., Tab], page: Any) -> None:
    tab = open_tab()
    page.wait_for_function("() => document.getElementById('totals-announced').textContent")
    page.evaluate(
        """() => {
          globalThis.announced = [];
          const heard = document.getElementById("totals-announced");
          new MutationObserver(() => announced.push(heard.textContent)).observe(heard, { childList: true });
          const slider = document.getElementById("drop");
          for (let percent = 1; percent <= 40; percent++) {
            slider.value = String(percent);
            slider.dispatchEvent(new Event("input"));
          }
        }"""
    )
    page.wait_for_function("() => announced.length > 0")
    tab.settled()
    assert [text.replace("\n", " ") for text in page.evaluate("() => announced")] == [tab.totals()]
