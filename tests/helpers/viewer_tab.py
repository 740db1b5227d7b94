"""What the viewer's browser tests share: a digits filter made by the library, and a tab to handle and to ask."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigbatch import filters
from bigbatch.curation import FilterRequest, filter_dataset


def make_filter(out: Path, *settings: str) -> Path:
    """By the real filter, of a digits network that is trained on the way (and found trained the second time)."""
    filter_dataset(
        FilterRequest("digits", out=out, network="digits", settings=settings, runs_dir=out.parent / "runs", quiet=True)
    )
    return out


class Library:
    """What the library says of a result: the judge of what the page says."""

    def __init__(self, path: Path) -> None:
        self.saved = filters.load(path)
        self.labels = self.saved.labels.numpy()
        self.points = self.saved.arrays.get("points", self.saved.arrays["map"])
        self.classes: list[str] = self.saved.manifest.dataset.classes

    def dropped(self, eps: dict[int, float] | None = None, min_samples: int = 5, **how: Any) -> NDArray[np.bool_]:
        """At these radii, or at those that a mode decides."""
        eps_star = filters.eps_star(self.points, self.labels, min_samples)
        radii = filters.decide_eps(eps_star, self.labels, **how) if eps is None else eps
        return ~filters.mask_at(eps_star, self.labels, radii)

    def counts(self, dropped: NDArray[np.bool_]) -> list[tuple[int, int]]:
        """Kept and dropped: of all, then class by class."""
        of_classes = [dropped[self.labels == index] for index in range(len(self.classes))]
        return [(int((~group).sum()), int(group.sum())) for group in (dropped, *of_classes)]


# notices go after some seconds: what was told is gathered as it comes
GATHER_NOTICES = """() => {
  globalThis.told = [];
  const gather = (changes) => {
    for (const { addedNodes } of changes) for (const node of addedNodes) told.push(node.textContent);
  };
  new MutationObserver(gather).observe(document.getElementById("notices"), { childList: true });
}"""


class Tab:
    """A page of the viewer. Numbers are read from what a person sees, unless a name says otherwise."""

    def __init__(self, page: Any, address: str, query: str = "") -> None:
        self.page = page
        page.goto(address.replace("/#", f"/{query}#"))
        self.ready()

    def ready(self) -> None:
        self.page.wait_for_selector("body[data-stage=ready]")
        self.page.wait_for_function("() => performance.getEntriesByName('first full paint').length === 1")
        self.page.evaluate(GATHER_NOTICES)
        self.settled()

    def reload(self) -> None:
        self.page.reload()
        self.ready()

    def settled(self) -> None:
        """Everything asked of the server is answered, and drawn."""
        self.page.evaluate(
            """async () => {
              const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
              await frame();
              for (const one of viewer.documents) await one.pending;
              await frame();
            }"""
        )

    def counts(self) -> list[tuple[int, int]]:
        """Kept and dropped as the list of classes has them: of all, then class by class."""
        rows = self.page.eval_on_selector_all(
            ".class-row",
            """rows => rows.map((row) => {
              const numbers = [...row.querySelectorAll(".number")];
              return [row.dataset.class, ...numbers.map((number) => number.innerText)];
            })""",
        )
        rows.sort(key=lambda row: int(row[0]))
        return [(int(kept.replace(",", "")), int(dropped.replace(",", ""))) for _, kept, dropped, _ in rows]

    def totals(self) -> str:
        return self.page.inner_text("#totals").replace("\n", " ")

    def inner_dropped(self, document: int = 0) -> NDArray[np.bool_]:
        return np.array(self.page.evaluate("d => Array.from(viewer.documents[d].dropped)", document), dtype=bool)

    def inner_eps(self) -> dict[int, float]:
        return dict(enumerate(self.page.evaluate("() => Array.from(viewer.document.settings.eps)")))

    def inner_selected(self) -> list[int]:
        bits = self.page.evaluate("() => Array.from(viewer.selected)")
        return np.flatnonzero(bits).tolist()

    def focus(self) -> int:
        return self.page.evaluate("() => viewer.focus")

    def pixels(self, document: int = 0) -> NDArray[np.float64]:
        """Where each sample is on the screen."""
        box = self.page.locator(".overlay").nth(document).bounding_box()
        places = self.page.evaluate(
            "d => Array.from({length: viewer.documents[d].samples}, (_, i) => viewer.maps[d].pixelOf(i))", document
        )
        return np.array(places) + np.array([box["x"], box["y"]])

    def wait_told(self, words: str) -> str:
        """The notice with these words, when it has come."""
        self.page.wait_for_function("words => told.some((text) => text.includes(words))", arg=words)
        return self.page.evaluate("words => told.find((text) => text.includes(words))", words)

    def mode(self) -> str:
        return self.page.locator("#mode [aria-checked=true]").inner_text()

    def choose_class(self, index: int) -> None:
        self.page.click(f'.class-row[data-class="{index}"]')
        self.settled()

    def type_number(self, field: str, value: float) -> None:
        self.page.fill(field, str(value))
        self.page.press(field, "Enter")
        self.page.press(field, "Escape")  # out of the field, so that letters are shortcuts again
        self.settled()

    def draw(self, corners: list[tuple[float, float]]) -> None:
        """Along these corners with the button down."""
        self.page.mouse.move(*corners[0])
        self.page.mouse.down()
        for corner in corners[1:]:
            self.page.mouse.move(*corner, steps=12)
        self.page.mouse.up()
        self.settled()


class Process:
    """`bigbatch view` as a process that can be killed."""

    def __init__(self, path: Path, port: int = 0) -> None:
        command = [sys.executable, "-m", "bigbatch", "view", str(path), "--no-browser", "--port", str(port)]
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, cwd=path.parent, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = (re.search(r"http://127.0.0.1:(\d+)/#token=\S+", line) for line in self.process.stdout)
        said = next(match for match in found if match)
        self.address, self.port = said.group(), int(said.group(1))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
