"""metrics.jsonl: what is written is read back, older files and truncated ones too."""

from __future__ import annotations

import pytest
from small import small_run

from bigbatch.artifacts.folder import Folder
from bigbatch.artifacts.metrics import MetricsWriter, read_rows, scalars
from bigbatch.errors import Problem


@pytest.fixture
def folder(tmp_path):
    folder = Folder(tmp_path / "small-123")
    folder.create(small_run())
    return folder


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
    with pytest.raises(Problem, match=r"line 2 of .*metrics.jsonl is not a row .*: fix or remove it"):
        folder.rewind_metrics(3, None)
    assert len(path.read_text().splitlines()) == 3


def test_what_is_not_finite_is_null(folder):
    writer = MetricsWriter(folder.path / "metrics.jsonl")
    writer.add({"step": 1, "train_loss": float("nan"), "probe": {"values": [1.0, float("inf")]}})
    writer.close()
    assert folder.metrics() == [{"step": 1, "train_loss": None, "probe": {"values": [1.0, None]}}]


def test_scalars_are_the_numbers_wherever_they_are_nested():
    row = {"lr": 0.1, "kept": 3, "diverged": True, "train_loss": None, "text": "x", "inf": float("inf")}
    assert scalars(row | {"probe": {"mean": 2, "layers": [1, 2], "deep": {"x": 1.5}}}) == {
        "lr": 0.1,
        "kept": 3.0,
        "probe/mean": 2.0,
        "probe/deep/x": 1.5,
    }


def test_the_rate_of_older_metrics_files_is_read_as_lr(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "rate": 0.1, "kept": 3}\n{"step": 2, "lr": 0.2}\n')
    rows = list(read_rows(tmp_path / "metrics.jsonl"))
    assert rows == [{"step": 1, "lr": 0.1, "kept": 3}, {"step": 2, "lr": 0.2}]
    assert list(rows[0]) == ["step", "lr", "kept"]
