"""Time and memory of the viewer's page in headless Chromium without a GPU: first paint, eps changes, moving the map.

    python benchmarks/viewer.py [--points 50000 1000000] [--renderer canvas]

A real server process serves synthetic points of ten classes; a real mouse drags the eps slider and the map. "work" is
the page's own time for one change, "frame" the time from the frame of the change to the next one: it includes the
browser's time and is at least 1/60 s. Goals are for medians of frames. Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
CLASSES = 10
MOVES = 120

# collect the page's own measurements and the times of its frames
COLLECT_TIMINGS = """() => {
  const timings = { change: [], pan: [], at: [] };
  globalThis.timings = timings;
  new PerformanceObserver((list) => {
    for (const { name, startTime, duration } of list.getEntries()) {
      timings[name]?.push([startTime, startTime + duration]);
    }
  }).observe({ entryTypes: ["measure"] });
  const tick = (now) => { timings.at.push(now); requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
}"""
CLEAR_TIMINGS = "() => { for (const list of Object.values(globalThis.timings)) list.length = 0; }"


@dataclass(frozen=True)
class Goal:
    first_paint_seconds: float
    change_ms: float


GOALS = {50_000: Goal(2.0, 33.0), 1_000_000: Goal(float("inf"), 250.0)}


def write_points(path: Path, count: int) -> None:
    """Write ten clusters, and one point in twenty at random."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, CLASSES, count)
    angle = 2 * np.pi * labels / CLASSES
    places = np.stack([np.cos(angle), np.sin(angle)], 1) * 40 + draw.normal(0, 7, (count, 2))
    outliers = draw.random(count) < 0.05
    places[outliers] = draw.uniform(-60, 60, (outliers.sum(), 2))
    np.savez(path, map=places.astype(np.float32), labels=labels)


@contextmanager
def start_server(path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "bigbatch", "view", str(path), "--no-browser", "--port", "0"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(command, cwd=path.parent, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = next(found.group() for line in server.stdout if (found := re.search(r"http://\S+#token=\S+", line)))
        yield server, address
    finally:
        server.terminate()
        server.wait()


def resident_megabytes(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024  # type: ignore[union-attr]


def drag_mouse(page: Page, start: tuple[float, float], across: float, name: str) -> dict[str, list[float]]:
    """Move the mouse with its button down; return the page's own milliseconds and those from frame to frame."""
    page.evaluate(CLEAR_TIMINGS)
    page.mouse.move(*start)
    page.mouse.down()
    for move in range(MOVES):
        page.mouse.move(start[0] + across * np.sin(move / 12), start[1] + (move % 3))
    page.wait_for_function(f"() => timings.at.at(-1) > (timings.{name}.at(-1)?.[1] ?? Infinity)")
    timings = page.evaluate("() => globalThis.timings")
    page.mouse.up()
    ticks = np.array(timings["at"])
    begun, done = np.array(timings[name]).T
    own_frame = ticks[np.maximum(np.searchsorted(ticks, begun, side="right") - 1, 0)]
    next_frame = ticks[np.minimum(np.searchsorted(ticks, done), len(ticks) - 1)]
    return {"work": (done - begun).tolist(), "frame": (next_frame - own_frame).tolist()}


def measure(browser: Any, count: int, renderer: str | None, folder: Path) -> bool:
    """Print all timings for this many points; return whether the goals are met."""
    path = folder / f"points-{count}.npz"
    write_points(path, count)
    goal = GOALS.get(count, GOALS[1_000_000])
    began = time.monotonic()
    with start_server(path) as (server, address):
        started_seconds = time.monotonic() - began
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        page.add_init_script(f"({COLLECT_TIMINGS})()")
        page.goto(address.replace("/#", f"/?renderer={renderer}#" if renderer else "/#"))
        page.wait_for_function('() => performance.getEntriesByName("first full paint").length', timeout=120_000)
        paint = page.evaluate('() => performance.getEntriesByName("first full paint")[0].startTime') / 1000
        renderer_used = page.locator(".map").first.get_attribute("data-renderer")
        slider = page.locator("#eps").bounding_box()
        eps = drag_mouse(page, (slider["x"] + slider["width"] / 2, slider["y"] + slider["height"] / 2), 60, "change")
        panel = page.locator(".map").first.bounding_box()
        pan = drag_mouse(page, (panel["x"] + panel["width"] / 2, panel["y"] + panel["height"] / 2), 150, "pan")
        memory = resident_megabytes(server.pid)
        page.close()
    print(f"\n{count:,} points, drawn by {renderer_used}; server up after {started_seconds:.1f} s, {memory:.0f} MB")
    met = paint <= goal.first_paint_seconds
    print(f"  first full paint {paint:.2f} s" + format_goal(paint, goal.first_paint_seconds, "s"))
    for name, timed in (("eps change", eps), ("moving the map", pan)):
        median = statistics.median(timed["frame"])
        met &= median <= goal.change_ms
        print(f"  {name}: {format_timings(timed)}" + format_goal(median, goal.change_ms, "ms"))
    return met


def format_timings(timed: dict[str, list[float]]) -> str:
    parts = (
        f"{name} median {statistics.median(values):.1f} ms, worst {max(values):.1f} (n={len(values)})"
        for name, values in timed.items()
    )
    return "; ".join(parts)


def format_goal(value: float, goal: float, unit: str) -> str:
    if goal == float("inf"):
        return ""
    return f"  [goal {goal:g} {unit}: {'met' if value <= goal else 'MISSED'}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, nargs="+", default=list(GOALS))
    parser.add_argument("--renderer", choices=["canvas", "webgl"])
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f} before the start" + (": others are running" if load > 1 else ""))
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        met = [measure(browser, count, arguments.renderer, Path(folder)) for count in arguments.points]
        browser.close()
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
