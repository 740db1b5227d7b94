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


def test_a_run_json_that_was_changed_is_refused(folder):
    path = folder.path / "run.json"
    path.write_text(path.read_text().replace('"lr": 0.1', '"lr": 0.5'))
    with pytest.raises(Problem, match="was changed after the run started: restore it"):
        folder.run()


def test_files_moved_aside_come_back_if_no_checkpoint_was_saved(folder):
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


def test_a_folder_that_is_not_writable_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(Problem, match=r"is not writable .*: choose another --runs-dir"),
        Folder(tmp_path / "file" / "run").lock(),
    ):
        pass


def test_rows_after_a_step_are_dropped(folder):
    writer = MetricsWriter(folder.path / "metrics.jsonl")
    for step in (1, 2, 3):
        writer.add({"step": step})
    writer.close()
    rows, intact = folder.rewind_metrics(2, None)
    assert [row["step"] for row in rows] == [1, 2]
    assert intact
    assert [row["step"] for row in folder.metrics()] == [1, 2]


def test_a_second_process_is_refused_with_the_id_of_the_first(folder):
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


def test_a_folder_without_a_run_is_one_sentence(tmp_path):
    with pytest.raises(Problem, match=r"has no run.json, so it is not a complete run: give a folder like"):
        Folder(tmp_path).run()
    (tmp_path / "run.json").write_text('{"run": {')
    with pytest.raises(Problem, match="not readable JSON"):
        Folder(tmp_path).run()


def test_summary_json_is_read_with_missing_fields_as_none(folder):
    folder.write("summary.json", '{"test_accuracy": 0.9, "test_loss": 0.3, "steps": 12, "ranks": 1}')
    summary = folder.summary()
    assert (summary.test_accuracy, summary["test_accuracy"], summary.steps, summary.seconds) == (0.9, 0.9, 12, None)


def test_a_file_that_cannot_be_written_says_how_to_resume(folder):
    (folder.path / "status").mkdir()
    with pytest.raises(
        Problem, match=r"status could not be written \(.*\): allow writing there, then 'bigbatch resume"
    ):
        folder.status = "done"
