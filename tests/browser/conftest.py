"""A real headless Chromium, one a session. Tests here are marked `browser`; without the browser they are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser."""
    playwright = pytest.importorskip("playwright.sync_api")
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("no chromium on this machine")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Complaints:
    """What a page said on its console as an error or threw, and what it asked the network for."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A fresh page of 1280 x 720. `page.complaints` gathers console errors, exceptions and requested addresses."""
    context = chromium.new_context(viewport={"width": 1280, "height": 720}, accept_downloads=True)
    opened = context.new_page()
    complaints = opened.complaints = Complaints()
    opened.on("console", lambda said: complaints.errors.append(said.text) if said.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.errors.append(str(error)))
    opened.on("request", lambda request: complaints.requests.append(request.url))
    yield opened
    context.close()
