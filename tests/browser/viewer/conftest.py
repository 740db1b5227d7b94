"""One digits filter for all tests of the page; each test gets a copy of its own, and a server for it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from viewer_tab import Library, Tab, make_filter

from bigbatch.viewer.server import Server, ServerOptions


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_filter(tmp_path_factory.mktemp("filter") / "kept.npz", "iterations=100")


@pytest.fixture(scope="session")
def library(made: Path) -> Library:
    return Library(made)


@pytest.fixture
def kept(made: Path, tmp_path: Path) -> Path:
    for suffix in (".npz", ".json"):
        shutil.copy(made.with_suffix(suffix), tmp_path)
    return tmp_path / "kept.npz"


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Start a server for files; all of them end with the test."""
    servers: list[Server] = []

    def start(*paths: Path, runs_dir: Path | None = None) -> Server:
        server = Server(paths, ServerOptions(port=0, runs_dir=runs_dir or paths[0].parent / "runs"))
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def open_tab(kept: Path, page: Any, serve: Callable[..., Server]) -> Iterator[Callable[..., Tab]]:
    """Open the page of the digits filter, or of other files. The test fails where the page complained."""

    def open_one(*paths: Path, query: str = "") -> Tab:
        return Tab(page, serve(*(paths or (kept,))).url, query)

    yield open_one
    assert page.complaints.errors == []
