"""Processes that are started together end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from bigbatch.launch.processes import run_concurrently


def test_a_signal_leaves_no_ranks_behind(tmp_path):
    """The ranks' program never ends by itself; its process group is gone after the signal."""
    os.mkfifo(tmp_path / "started")
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom bigbatch.launch.processes import run_concurrently\n"
        "child = 'import os, sys, time; open(sys.argv[1], \"w\").write(str(os.getpid())); time.sleep(600)'\n"
        "folder = Path(sys.argv[1])\n"
        "run_concurrently([[sys.executable, '-c', child, str(folder / 'started')]], os.environ, folder, 600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.DEVNULL) as process:
        rank = int((tmp_path / "started").read_text())  # waits for it
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(rank, 0)


def test_one_that_fails_ends_those_that_wait_for_it(tmp_path):
    lines = [[sys.executable, "-c", f"import time; {code}"] for code in ("time.sleep(600)", "exit('no port')")]
    assert run_concurrently(lines, dict(os.environ), tmp_path, 60) == ["", "no port\n"]
