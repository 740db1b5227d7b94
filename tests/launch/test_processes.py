"""Ranks as processes: their command line, environment and messages; those started together end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from bigbatch.errors import DONE, Problem
from bigbatch.launch import processes
from bigbatch.launch.processes import run_concurrently


def test_one_process_needs_no_launcher():
    assert processes.rank_command("local", 1, "mod", ["a"]) == [sys.executable, "-m", "mod", "a"]


def test_torchrun_takes_a_free_port_and_restarts_ranks():
    command = processes.rank_command("ddp", 3, "mod", ["a", "--b"])
    assert command[:3] == [sys.executable, "-m", "bigbatch.launch.torchrun"]
    assert {"--standalone", "--nproc-per-node=3", "--max-restarts=3"} <= set(command)
    assert command[-4:] == ["-m", "mod", "a", "--b"]


def test_ranks_share_the_cores_unless_the_user_decides(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(processes.os, "cpu_count", lambda: 8)
    assert processes.rank_environment(3)["OMP_NUM_THREADS"] == "2"
    assert processes.rank_environment(100)["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert processes.rank_environment(3)["OMP_NUM_THREADS"] == "5"


def test_a_message_is_left_for_our_launcher_alone(tmp_path, monkeypatch):
    monkeypatch.delenv(processes.MESSAGES, raising=False)
    assert not processes.leave_message("lost")
    assert not processes.started_by_launcher()
    monkeypatch.setenv(processes.MESSAGES, str(tmp_path))
    monkeypatch.setenv("RANK", "1")
    assert processes.leave_message("a rank says why")
    assert (tmp_path / "rank-1").read_text() == "a rank says why"


def test_a_command_runs_on_ranks_and_the_same_message_of_all_is_one():
    assert processes.run_command_on_ranks(["list", "engines"], 2) == DONE
    with pytest.raises(Problem, match=r"^no kind of part called 'nothing'[^;]*$"):
        processes.run_command_on_ranks(["list", "nothing"], 2)


def test_output_is_flushed_before_the_process_ends_at_once():
    code = "from bigbatch.launch.processes import exit_process; print('last words', end=''); exit_process(7)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (7, "last words")


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
