"""How a global batch is split: by timing, by BatchNorm groups, by what the run or its folder says."""

from __future__ import annotations

import pytest
import torch
from small import small_run

from bigbatch import engines, parts
from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem
from bigbatch.training import micro_batch
from bigbatch.training.assembly import AssembledRun
from bigbatch.training.batches import Split


def with_cost(cost):
    """A machine whose time per sample is known; what is asked of it is noted."""
    asked = []

    def seconds_for(count):
        asked.append(count)
        return cost(count) * count

    return seconds_for, asked


def test_the_fastest_is_found_where_the_largest_is_not_it():
    seconds_for, asked = with_cost(lambda n: 1 / n + n / 256**2)  # least at 256
    assert micro_batch.choose(8192, seconds_for) == 256
    assert max(asked) <= 2048  # and the hopeless ones are not tried


def test_the_whole_batch_is_a_candidate():
    seconds_for, _ = with_cost(lambda n: 1 / n)
    assert micro_batch.choose(1000, seconds_for) == 1000
    assert micro_batch.choose(5, seconds_for) == 5


def test_what_does_not_fit_is_not_chosen():
    def seconds_for(count):
        if count > 64:
            raise torch.OutOfMemoryError("no memory")
        return 1.0

    assert micro_batch.choose(8192, seconds_for) == 64


def test_other_peoples_load_does_not_decide():
    calls = {}

    def seconds_for(count):
        calls[count] = calls.get(count, 0) + 1
        disturbed = 1.2 if count == 64 and calls[count] == 2 else 1.0  # once slow, then as fast as it is
        return disturbed * (0.9 if count == 64 else 1.0) * count

    assert micro_batch.choose(128, seconds_for) == 64


def test_a_choice_is_remembered_by_its_key():
    assert micro_batch.remember({"model": "a"}, lambda: 32) == 32
    assert micro_batch.remember({"model": "a"}, lambda: 64) == 32
    assert micro_batch.remember({"model": "b"}, lambda: 64) == 64


NET = {"name": "outside:Net", "dropout": 0.0}  # it has BatchNorm


def assemble(**fields):
    return AssembledRun(small_run(**fields), engines.start(parts.configure("engines", "local")))


@pytest.mark.parametrize(
    ("fields", "group"),
    [
        ({"micro_batch": "auto"}, 128),  # the default
        ({"micro_batch": "auto", "global_batch": 96}, 96),  # never more than the batch
        ({"micro_batch": 32}, 32),
        ({"micro_batch": "auto", "batchnorm_group": 16}, 16),
    ],
)
def test_batchnorm_groups_are_the_micro_batches_in_training_and_at_rest(fields, group, tmp_path):
    assembled, folder = assemble(model=NET, **fields), Folder(tmp_path / "run")
    folder.create(assembled.run)
    global_batch = assembled.first_global_batch()
    expected = Split(1, group, whole_groups=True)
    assert micro_batch.split_at_rest(assembled, None, global_batch) == expected
    assert micro_batch.choose_split(assembled, folder, global_batch) == expected
    assert folder.resolved() == {"micro_batch": group, "ranks": 1, "batchnorm_group": group}
    assert micro_batch.split_at_rest(assembled, folder, global_batch) == expected


def test_a_resumed_run_keeps_the_group_that_its_folder_records(tmp_path):
    assembled, folder = assemble(model=NET, micro_batch="auto"), Folder(tmp_path / "run")
    folder.create(assembled.run)
    folder.record_resolved(batchnorm_group=24)
    assert micro_batch.choose_split(assembled, folder, 256).micro_batch == 24


def test_micro_batches_cannot_differ_from_the_batchnorm_group(tmp_path):
    assembled, folder = assemble(model=NET, micro_batch=32, batchnorm_group=64), Folder(tmp_path / "run")
    folder.create(assembled.run)
    with pytest.raises(Problem, match="micro_batch 32 differs from the BatchNorm group 64"):
        micro_batch.choose_split(assembled, folder, 256)


def test_without_batchnorm_a_fixed_micro_batch_is_not_timed(tmp_path, monkeypatch):
    assembled, folder = assemble(micro_batch=48), Folder(tmp_path / "run")
    folder.create(assembled.run)
    monkeypatch.setattr(assembled.gradient.forward, "time_trial", lambda *_: pytest.fail("a micro-batch was timed"))
    assert micro_batch.choose_split(assembled, folder, 256) == Split(1, 48)
    assert micro_batch.split_at_rest(assembled, None, 32) == Split(1, 32)
