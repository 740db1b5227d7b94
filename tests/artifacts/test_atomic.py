"""A file has its old content or its new content, never a part of it."""

from __future__ import annotations

import pytest

from bigbatch.artifacts import atomic
from bigbatch.errors import Problem


def test_an_error_while_writing_keeps_the_old_content(tmp_path):
    target = atomic.write_text(tmp_path / "new" / "table.csv", "old")
    with pytest.raises(ZeroDivisionError), atomic.replace_file(target) as temporary:
        temporary.write_text("half")
        1 / 0  # noqa: B018
    assert target.read_text() == "old"
    assert [path.name for path in target.parent.iterdir()] == ["table.csv"]


def test_a_folder_that_is_not_writable_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        Problem, match=r"file/table\.csv could not be written \(.*\): allow writing there, or choose another folder"
    ):
        atomic.write_text(tmp_path / "file" / "table.csv", "new")


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    target = tmp_path / "checkpoint"
    for content in ("old", "new"):
        with atomic.replace_folder(target) as temporary:
            (temporary / content).write_text(content)
    with pytest.raises(ZeroDivisionError), atomic.replace_folder(target) as temporary:
        (temporary / "half").write_text("half")
        1 / 0  # noqa: B018
    assert [path.name for path in target.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_an_out_folder_is_checked_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    atomic.check_writable(tmp_path / "new" / "folder")
    with pytest.raises(Problem, match="file is a file, name a new or an existing folder"):
        atomic.check_writable(tmp_path / "file" / "folder")
