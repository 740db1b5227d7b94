from __future__ import annotations

import json
import subprocess
import sys

import pytest
from small import small_run

from bigbatch.artifacts.folder import Folder
from bigbatch.artifacts.metrics import MetricsWriter
from bigbatch.errors import Problem


@pytest.fixture
def folder(tmp_path):
    folder = Folder(tmp_path / "small-123")
    folder.create(small_run())
    return folder


def test_run_json_says_where_a_result_comes_from(folder):
    about = json.loads((folder.path / "run.json").read_text())
    assert folder.run() == small_run()
    assert about["hash"] == small_run().hash
    assert about["packages"]["torch"]
    assert about["hardware"]["cores"] >= 1
    assert {"commit", "dirty_diff", "command"} <= about.keys()


def test_rows_come_back_and_a_line_cut_short_is_left_out(folder):
    writer = MetricsWriter(folder.path / "metrics.jsonl")
    for step in (1, 2, 3):
        writer.add({"step": step, "train_loss": 0.1 * step})
    writer.close()
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "tra')
    assert [row["step"] for row in folder.metrics()] == [1, 2, 3]


def test_a_broken_line_in_the_middle_is_named_and_nothing_is_dropped(folder):
    path = folder.path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(Problem, match=r"line 2 of .*metrics.jsonl is not JSON .*: mend or remove it"):
        folder.rewind(3)
    assert len(path.read_text().splitlines()) == 3


def test_what_is_not_finite_is_null(folder):
    writer = MetricsWriter(folder.path / "metrics.jsonl")
    writer.add({"step": 1, "train_loss": float("nan"), "probe": {"values": [1.0, float("inf")]}})
    writer.close()
    assert folder.metrics() == [{"step": 1, "train_loss": None, "probe": {"values": [1.0, None]}}]


def test_a_run_json_that_was_changed_is_refused(folder):
    path = folder.path / "run.json"
    path.write_text(path.read_text().replace('"lr": 0.1', '"lr": 0.5'))
    with pytest.raises(Problem, match="was changed after the run had begun: put it back"):
        folder.run()


def test_what_was_set_aside_comes_back_if_nothing_new_was_saved(folder):
    folder.status = "done"
    (folder.checkpoints / "step-00000001").mkdir(parents=True)
    with pytest.raises(Problem), folder.move_aside():
        assert folder.status is None
        folder.status = "failed"
        raise Problem("does not divide")
    assert folder.status == "done"
    assert [path.name for path in folder.checkpoints.iterdir()] == ["step-00000001"]
    with folder.move_aside():
        folder.status = "running"
    assert folder.status == "running"
    assert not folder.checkpoints.exists()
    assert not (folder.path / ".before").exists()


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(Problem, match=r"cannot be written to .*: choose another --runs-dir"),
        Folder(tmp_path / "file" / "run").lock(),
    ):
        pass


def test_rewinding_drops_what_will_be_made_again(folder):
    writer = MetricsWriter(folder.path / "metrics.jsonl")
    for step in (1, 2, 3):
        writer.add({"step": step})
    writer.close()
    assert [row["step"] for row in folder.rewind(2)] == [1, 2]
    assert [row["step"] for row in folder.metrics()] == [1, 2]


def test_a_second_process_is_refused_and_told_who_is_there(folder):
    hold = (
        "import sys; from pathlib import Path; from bigbatch.artifacts.folder import Folder\n"
        "with Folder(Path(sys.argv[1])).lock(): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(folder.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(Problem, match=f"is being trained by process {other.pid}: wait for it"), folder.lock():
            pass
        assert folder.lock_holder_pid() == other.pid
        other.kill()  # the lock dies with its process
    with folder.lock():
        assert folder.lock_holder_pid() is not None
    assert folder.lock_holder_pid() is None


def test_a_folder_that_is_no_run_is_one_sentence(tmp_path):
    with pytest.raises(Problem, match=r"has no run.json, so it is no whole run: give a folder like"):
        Folder(tmp_path).run()
    (tmp_path / "run.json").write_text('{"run": {')
    with pytest.raises(Problem, match="not readable JSON"):
        Folder(tmp_path).run()
