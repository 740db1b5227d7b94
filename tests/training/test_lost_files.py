"""Files of a run that are lost, damaged or out of reach: nothing is rewound, dropped or reported wrongly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from small import final_weights, same_bits, small_run

from bigbatch.artifacts.folder import Folder
from bigbatch.artifacts.summary import Summary
from bigbatch.errors import Notice, Problem
from bigbatch.training.loop import train


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder of a run of two epochs."""
    torch.set_num_threads(1)  # as in every test; a module's fixture comes before
    runs = tmp_path_factory.mktemp("finished")
    train(small_run(), runs_dir=runs)
    return runs


def unfinished(finished: Path, tmp_path: Path, status: str = "running") -> Folder:
    """The same run as if it had been killed after its last checkpoint, before its summary."""
    shutil.copytree(finished, tmp_path / "runs")
    folder = Folder(tmp_path / "runs" / small_run().folder_name)
    (folder.path / "summary.json").unlink()
    folder.status = status
    return folder


def resume(folder: Folder) -> Summary:
    return train(small_run(), runs_dir=folder.path.parent)


def move_away(folder: Folder) -> None:
    folder.checkpoints.rename(folder.path.parent / "elsewhere")


def leave_a_dangling_link(folder: Folder) -> None:
    move_away(folder)
    folder.checkpoints.symlink_to("/nowhere/checkpoint")


def leave_an_empty_mount_point(folder: Folder) -> None:
    move_away(folder)
    folder.checkpoints.mkdir()


def leave_what_cannot_be_listed(folder: Folder) -> None:
    """root may list any folder, so that a missing permission cannot be tried here; a file cannot be listed either."""
    move_away(folder)
    folder.checkpoints.write_text("")


def leave_the_older_one(folder: Folder) -> None:
    shutil.rmtree(max(folder.checkpoints.iterdir()))


@pytest.mark.parametrize(
    ("lose", "sentence"),
    [
        (move_away, r"has no checkpoint of step 12 or later, but this run saved one: make it reachable again"),
        (leave_a_dangling_link, r"checkpoint leads to /nowhere/checkpoint, which is out of reach: mount or restore it"),
        (leave_an_empty_mount_point, "has no checkpoint of step 12 or later"),
        (leave_what_cannot_be_listed, r"checkpoint cannot be read \(Not a directory\): make it readable"),
        (leave_the_older_one, "has no checkpoint of step 12 or later"),
    ],
)
@pytest.mark.parametrize("status", ["running", "failed", "stopped"])
def test_checkpoints_out_of_reach_rewind_nothing(finished, tmp_path, lose, sentence, status):
    folder = unfinished(finished, tmp_path, status)
    lose(folder)
    rows = (folder.path / "metrics.jsonl").read_bytes()
    with pytest.raises(Problem, match=sentence):
        resume(folder)
    assert (folder.path / "metrics.jsonl").read_bytes() == rows
    assert folder.status == status


def test_a_run_that_saved_nothing_begins_again_and_keeps_what_it_drops(finished, tmp_path):
    folder = unfinished(finished, tmp_path)
    shutil.rmtree(folder.checkpoints)
    (folder.path / "saved").unlink()  # killed before the first checkpoint
    rows = (folder.path / "metrics.jsonl").read_bytes()
    resume(folder)
    assert (folder.path / "metrics.jsonl.1").read_bytes() == rows
    assert same_bits(final_weights(folder), final_weights(finished / folder.path.name))


def test_rows_after_the_checkpoint_are_kept_beside(finished, tmp_path):
    folder = unfinished(finished, tmp_path)
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 13, "train_loss": 1.0}\n{"step": 14, "tr')
    assert resume(folder).test_accuracy == Folder(finished / folder.path.name).summary().test_accuracy
    assert (folder.path / "metrics.jsonl.1").read_text() == '{"step": 13, "train_loss": 1.0}\n{"step": 14, "tr'
    assert (folder.path / "metrics.jsonl").read_bytes() == (finished / folder.path.name / "metrics.jsonl").read_bytes()


def lose_the_last_row(content: bytes) -> bytes:
    return b"".join(content.splitlines(keepends=True)[:-1])


def lose_the_second_epoch(content: bytes) -> bytes:
    return b"".join(content.splitlines(keepends=True)[:7])


def lose_all(content: bytes) -> bytes:
    return b""


def damage_the_result(content: bytes) -> bytes:
    *before, last = content.splitlines(keepends=True)
    return b"".join([*before, last.replace(b'"test_accuracy": 0.', b'"test_accuracy": 1.')])


def damage_a_line(content: bytes) -> bytes:
    first, second, *others = content.splitlines(keepends=True)
    return b"".join([first, b"\xff" + second, *others])


@pytest.mark.parametrize("lose", [lose_the_last_row, lose_the_second_epoch, lose_all, damage_the_result, damage_a_line])
def test_the_result_is_measured_again_where_rows_are_lost(finished, tmp_path, lose):
    folder = unfinished(finished, tmp_path)
    path = folder.path / "metrics.jsonl"
    damaged = lose(path.read_bytes())
    assert damaged != path.read_bytes()
    path.write_bytes(damaged)
    with pytest.warns(Notice, match=r"is not as it was saved with step 12 \(14 rows\): \d+ rows up to that step are"):
        summary = resume(folder)
    expected = Folder(finished / folder.path.name).summary()
    assert (summary.test_accuracy, summary.test_loss) == (expected.test_accuracy, expected.test_loss)
    assert folder.summary().train_loss is None  # it was in a row that may be lost
    assert folder.status == "done"


def test_a_run_goes_on_after_lost_rows_to_the_same_weights(tmp_path):
    train(small_run(), runs_dir=tmp_path / "whole")
    longer = small_run(epochs=3)
    train(longer, runs_dir=tmp_path / "long")
    # the same three epochs, stopped after two and with its first row lost
    folder = Folder(tmp_path / "cut" / longer.folder_name)
    shutil.copytree(tmp_path / "long" / longer.folder_name, folder.path)
    shutil.rmtree(max(folder.checkpoints.iterdir()))
    (folder.path / "summary.json").unlink()
    folder.status, folder.saved_step = "running", 12
    lines = (folder.path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder.path / "metrics.jsonl").write_text("".join(lines[1:]))
    with pytest.warns(Notice, match=r"step 12 \(14 rows\): 13 rows"):
        train(longer, runs_dir=tmp_path / "cut")
    assert same_bits(final_weights(folder), final_weights(tmp_path / "long" / longer.folder_name))
    tests = [row for row in folder.metrics() if "test_loss" in row]
    assert [row["step"] for row in tests] == [6, 12, 12, 18]
    assert tests[1]["test_loss"] == tests[2]["test_loss"]
    assert tests[3] | {"seconds": 0} == json.loads(lines[-1]) | {"seconds": 0}


def test_left_overs_of_a_kill_are_cleared(tmp_path):
    run = small_run(steps=2, epochs=None)
    folder = Folder(tmp_path / run.folder_name)
    (folder.checkpoints / ".step-00000001.tmp").mkdir(parents=True)
    (folder.checkpoints / ".step-00000001.tmp" / "state.pt").write_text("half")
    (folder.path / ".status.123.tmp").write_text("half")
    train(run, runs_dir=tmp_path)
    assert [path.name for path in folder.checkpoints.iterdir()] == ["step-00000002"]
    assert not list(folder.path.glob(".*.tmp"))
