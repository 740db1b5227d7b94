import pytest
from small import small_run

from bigbatch import datasets, parts
from bigbatch.errors import Problem
from bigbatch.position import Progress
from bigbatch.training.batches import Batches
from bigbatch.training.progress import EpochCounter

SAMPLES = 1437


@pytest.fixture(scope="module")
def batches():
    return Batches(datasets.load(parts.configure("datasets", "digits")), 0)


def test_a_part_of_an_epoch_is_a_budget(batches):
    counter = EpochCounter(small_run(epochs=1.1), batches)
    assert counter.samples_left(Progress(), 256) == round(1.1 * SAMPLES)
    assert counter.samples_left(Progress(epoch=1, offset=100), 256) == round(1.1 * SAMPLES) - SAMPLES - 100
    assert not counter.budget_spent(Progress(epoch=1, offset=143), 256)
    assert counter.budget_spent(Progress(epoch=1, offset=144), 256)


def test_steps_have_a_length_in_epochs(batches):
    # 1437 = 5 · 256 + 157: six steps an epoch
    counter = EpochCounter(small_run(epochs=None, steps=8), batches)
    assert counter.total_epochs(256) == pytest.approx(1 + 2 * 256 / SAMPLES)
    assert not counter.budget_spent(Progress(step=7), 256)
    assert counter.budget_spent(Progress(step=8), 256)


def test_lrs_are_read_at_the_middle_of_a_batch(batches):
    counter = EpochCounter(small_run(epochs=2), batches)
    position = counter.position(Progress(epoch=1, offset=256), 256, 256)
    assert position.epochs == pytest.approx(1 + 384 / SAMPLES)
    assert position.total_epochs == 2


def test_steps_and_a_changing_batch_do_not_go_together(batches):
    stages = {
        "name": "steps",
        "stages": [{"from_epoch": 0, "global_batch": 64}, {"from_epoch": 1, "global_batch": 256}],
    }
    with pytest.raises(Problem, match="a budget of 8 steps has no length in epochs while the batch changes"):
        EpochCounter(small_run(epochs=None, steps=8, global_batch=stages), batches)
