"""A file is there whole or not at all."""

from __future__ import annotations

import pytest

from bigbatch.artifacts import atomic
from bigbatch.errors import Problem


def test_an_error_on_the_way_leaves_what_was_there(tmp_path):
    target = atomic.write_text(tmp_path / "new" / "table.csv", "old")
    with pytest.raises(ZeroDivisionError), atomic.file(target) as temporary:
        temporary.write_text("half")
        1 / 0  # noqa: B018
    assert target.read_text() == "old"
    assert [path.name for path in target.parent.iterdir()] == ["table.csv"]


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Problem, match=r"file/table\.csv could not be written \(.*\): choose another place"):
        atomic.write_text(tmp_path / "file" / "table.csv", "new")
