"""One thread and a cache of its own for every test: results must not depend on the machine's load or memory."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch

HELPERS = Path(__file__).parent / "helpers"
# processes that tests start find the same helpers; set here, as fixtures of a module come before those of a test
# (an empty entry would be the current folder)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HELPERS), os.environ.get("PYTHONPATH")]))
os.environ["BIGBATCH_TRUST"] = "filter_parts"  # what tests configure directly, they trust

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell without job control starts background commands with SIGINT ignored, and children inherit that:
    # no test that presses Ctrl-C could pass under `nohup make test &`
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # likewise under nohup


@pytest.fixture(autouse=True)
def _small_and_alone(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "config"))
