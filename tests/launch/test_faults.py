"""Trainings whose terminal, pipe, launcher or rank goes away: a checkpoint, a sentence, and nothing left running."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import process_trees
import pytest
from small import bigbatch, small_run, write_run

from bigbatch.artifacts.folder import Folder
from bigbatch.run import Run

pytestmark = pytest.mark.faults
ENDLESS = small_run(epochs=100_000)


def command(run: Run, folder: Path, ranks: int) -> list[str]:
    words = ("train", write_run(run, folder), "--ranks", ranks, "--runs-dir", folder)
    return [sys.executable, "-m", "bigbatch", *map(str, words)]


def folder_of(run: Run, folder: Path, ranks: int) -> Folder:
    return Folder(folder / run.on_ranks(ranks, "ddp").folder_name)


@contextmanager
def training(folder: Path, ranks: int, run: Run = ENDLESS, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A training that has evaluated at least once."""
    with process_trees.start(command(run, folder, ranks), stderr=subprocess.PIPE, **options) as process:
        assert process.stderr
        next(line for line in process.stderr if "test accuracy" in line)
        yield process


def assert_stopped(folder: Folder) -> None:
    assert folder.status == "stopped"
    assert any(folder.checkpoints.glob("step-*"))
    assert folder.lock_holder_pid() is None


@pytest.mark.parametrize("ranks", [1, 2])
def test_sighup_stops_with_a_checkpoint(tmp_path, ranks):
    with training(tmp_path, ranks) as process:
        ours = process_trees.descendants(process.pid)
        process.send_signal(signal.SIGHUP)
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 75, stderr
    assert "continues it" in stderr
    assert "Traceback" not in stderr
    assert_stopped(folder_of(ENDLESS, tmp_path, ranks))
    process_trees.wait_for_ends(ours)


@pytest.mark.parametrize("ranks", [1, 2])
def test_nohup_is_respected(tmp_path, ranks):
    run = small_run(epochs=40)
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    with training(tmp_path, ranks, run, **ignore) as process:
        process.send_signal(signal.SIGHUP)
        _, stderr = process.communicate(timeout=200)
    assert process.returncode == 0, stderr
    assert folder_of(run, tmp_path, ranks).status == "done"


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_closed_pipe_stops_with_a_checkpoint(tmp_path, ranks):
    with training(tmp_path, ranks, stdout=subprocess.DEVNULL) as process:
        process.stderr.close()  # as `2>&1 | head -1` does
        assert process.wait(timeout=120) == 75
    assert_stopped(folder_of(ENDLESS, tmp_path, ranks))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_closed_terminal_stops_with_a_checkpoint(tmp_path, ranks):
    ours, its = pty.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    line = command(ENDLESS, tmp_path, ranks)
    with process_trees.start(line, stdin=its, stdout=its, stderr=its, preexec_fn=take_terminal) as process:
        os.close(its)
        seen = b""
        while b"test accuracy" not in seen:  # it trains, with a bar
            seen += os.read(ours, 4096)
        below = process_trees.descendants(process.pid)
        os.close(ours)
        assert process.wait(timeout=120) == 75
    process_trees.wait_for_ends(below)
    assert_stopped(folder_of(ENDLESS, tmp_path, ranks))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_display_that_cannot_write_falls_silent_and_the_training_goes_on(tmp_path, ranks):
    run = small_run()
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command(run, tmp_path, ranks), stdout=full, stderr=full, timeout=200)
    assert folder_of(run, tmp_path, ranks).status == "done"
    assert done.returncode in (0, 1, 120)  # stdout, the result's line, is full as well


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_result_that_nobody_reads_is_kept(tmp_path, ranks):
    run = small_run()
    with process_trees.start(command(run, tmp_path, ranks), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        stderr = process.stderr.read()
        assert process.wait(timeout=200) == (141 if ranks == 1 else 0)
    assert "Traceback" not in stderr
    assert "restarted" not in stderr
    assert folder_of(run, tmp_path, ranks).status == "done"


def test_a_launcher_that_is_killed_takes_its_ranks_with_it(tmp_path):
    with training(tmp_path, 2) as process:
        below = process_trees.descendants(process.pid)
        assert len(below) >= 3  # torchrun and two ranks
        process.kill()
        process_trees.wait_for_ends(below)
    folder = folder_of(ENDLESS, tmp_path, 2)
    assert_stopped(folder)
    step = max(int(path.name.partition("-")[2]) for path in folder.checkpoints.glob("step-*"))
    assert [row["step"] for row in folder.metrics() if "lr" in row] == list(range(1, step + 1))


def test_a_killed_torchrun_is_a_sentence_and_the_command_that_goes_on(tmp_path):
    with training(tmp_path, 2) as process:
        torchrun, *ranks = process_trees.descendants(process.pid)
        os.kill(torchrun, signal.SIGKILL)
        _, stderr = process.communicate(timeout=120)
    folder = folder_of(ENDLESS, tmp_path, 2)
    assert process.returncode == 75, stderr
    assert "bigbatch: the launcher of the ranks was killed by SIGKILL: they stop" in stderr
    assert f"'bigbatch resume {folder.path}' continues it" in stderr
    assert "Traceback" not in stderr
    process_trees.wait_for_ends(ranks)
    assert_stopped(folder)


def test_a_rank_that_always_dies_is_a_sentence_each_time_and_one_in_the_end(tmp_path):
    never = str(tmp_path / "no-such-folder" / "marker")  # it cannot be left, so that the rank dies again
    run = small_run(optimizer={"name": "outside:DyingSGD", "lr": 0.05, "marker": never, "at_step": 3, "rank": 1})
    done = bigbatch("train", write_run(run, tmp_path), "--ranks", 2, "--runs-dir", tmp_path, expect=1)
    folder = folder_of(run, tmp_path, 2)
    assert done.stderr.count("ended with exit code 1 (see above): all ranks are restarted from the last") == 3
    assert f"'bigbatch resume {folder.path} --ranks 2' continues from the last checkpoint" in done.stderr
    assert "ChildFailedError" not in done.stderr


def test_a_rank_that_is_killed_is_named(tmp_path):
    marker = str(tmp_path / "died")
    run = small_run(optimizer={"name": "outside:DyingSGD", "lr": 0.05, "marker": marker, "at_step": 3, "rank": 1})
    done = bigbatch("train", write_run(run, tmp_path), "--ranks", 2, "--runs-dir", tmp_path)
    sentence = "bigbatch: rank 1 was killed by SIGKILL: all ranks are restarted from the last checkpoint"
    assert done.stderr.count(sentence) == 1
    assert "Traceback" not in done.stderr


TIMES_OUT = """
import pytest
from small import bigbatch

@pytest.mark.timeout(40)
def test_endless():
    bigbatch("train", "{run}", "--ranks", 2, "--runs-dir", "{folder}")
"""


def test_a_test_that_times_out_ends_its_whole_tree(tmp_path):
    test = tmp_path / "test_endless.py"
    test.write_text(TIMES_OUT.format(run=write_run(ENDLESS, tmp_path), folder=tmp_path))
    folder = folder_of(ENDLESS, tmp_path, 2)
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    with process_trees.start(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        below: list[int] = []
        while process.poll() is None and len(below) < 4:  # the command, torchrun and two ranks
            below = process_trees.descendants(process.pid)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
        output = process.stdout.read()
        assert process.wait(timeout=120) == 1, output
    assert "Timeout" in output
    process_trees.wait_for_ends(below)
    assert folder.lock_holder_pid() is None
