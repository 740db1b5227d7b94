"""Processes of a sweep find the parts of these tests, and sweeps in this process share one that has imported torch."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bigbatch.sweeps import timing, worker
from bigbatch.sweeps.forks import Forks


class KeptForks(Forks):
    """Stops what runs when a worker is done with it, as always, but stays for the next one: 4 CPU seconds a test."""

    def close(self) -> None:
        for number, code in self.codes.items():
            if code is None:
                self.signal(number, signal.SIGTERM)
                self.wait(number)


@pytest.fixture(scope="session")
def kept_forks() -> Iterator[KeptForks]:
    forks = KeptForks(threads=1)
    yield forks
    Forks.close(forks)


@pytest.fixture(autouse=True)
def _parts_are_found(_small_and_alone: None, kept_forks: KeptForks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ["PYTHONPATH"]]))
    for module in (worker, timing):
        monkeypatch.setattr(module, "Forks", lambda *_: kept_forks)
