"""One digits filter for all tests of the viewer; each gets a copy of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from viewer_pages import make_kept


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_kept(tmp_path_factory.mktemp("made") / "kept.npz")


@pytest.fixture
def kept(made: Path, tmp_path: Path) -> Path:
    for suffix in (".npz", ".json"):
        shutil.copy(made.with_suffix(suffix), tmp_path)
    return tmp_path / "kept.npz"
