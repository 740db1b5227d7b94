import pytest
import torch

from bigbatch import datasets, parts
from bigbatch.errors import Problem
from bigbatch.position import Progress
from bigbatch.training.batches import Batches, Split


@pytest.fixture(scope="module")
def digits():
    return datasets.load(parts.configure("datasets", "digits"))


def epochs_of_order(dataset, split, global_batch, steps, seed=0, kept=None):
    """The sample numbers of each step, as the ranks fetch them."""
    batches, progress, seen = Batches(dataset, seed, kept), Progress(), []
    for _ in range(steps):
        batch = batches.next(progress, global_batch, split)
        seen.append([batch.indices[piece.start : piece.stop] for rank in batch.by_rank for piece in rank])
        progress = batch.after
    return [torch.cat(step) for step in seen], progress


@pytest.mark.parametrize("micro_batch", [1, 7, 64, 10_000])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("whole_groups", [False, True])
def test_the_order_does_not_depend_on_ranks_or_micro_batches(digits, ranks, micro_batch, whole_groups):
    steps = 8  # more than an epoch of 1437 at 256
    reference, _ = epochs_of_order(digits, Split(1, 10_000), 256, steps)
    seen, _ = epochs_of_order(digits, Split(ranks, micro_batch, whole_groups), 256, steps)
    assert all(torch.equal(a, b) for a, b in zip(reference, seen, strict=True))


def test_an_epoch_has_every_sample_once_and_the_next_another_order(digits):
    count = len(digits.train)
    steps_per_epoch = -(-count // 256)
    seen, progress = epochs_of_order(digits, Split(2, 64), 256, 2 * steps_per_epoch)
    first, second = torch.cat(seen[:steps_per_epoch]), torch.cat(seen[steps_per_epoch:])
    assert torch.equal(first.sort().values, torch.arange(count))
    assert torch.equal(second.sort().values, torch.arange(count))
    assert not torch.equal(first, second)
    assert (progress.epoch, progress.offset, progress.samples) == (2, 0, 2 * count)
    assert len(seen[steps_per_epoch - 1]) == count % 256  # the last batch is what is left


def test_a_resume_position_is_enough(digits):
    whole, _ = epochs_of_order(digits, Split(1, 64), 100, 30)
    batches, split = Batches(digits, 0), Split(4, 16)
    progress = Progress()
    for _ in range(17):
        progress = batches.next(progress, 100, split).after
    fresh = Batches(digits, 0)  # as after a restart
    assert torch.equal(fresh.next(progress, 100, Split(1, 64)).indices, whole[17])


def test_only_kept_samples_are_seen(digits):
    kept = torch.arange(0, 1000, 3)
    seen, _ = epochs_of_order(digits, Split(1, 64), 100, 4, kept=kept)
    assert torch.equal(torch.cat(seen).sort().values, kept)


@pytest.mark.parametrize("count", [1, 2, 127, 128, 129, 257, 512])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_slices_cover_a_batch_once(count, ranks):
    for split in (Split(ranks, 64), Split(ranks, 64, whole_groups=True)):
        by_rank = split.slices(count)
        pieces = [piece for rank in by_rank for piece in rank]
        assert len(by_rank) == ranks
        assert [i for piece in pieces for i in range(piece.start, piece.stop)] == list(range(count))
        assert max(piece.count for piece in pieces) <= 64


def test_batchnorm_groups_are_the_same_on_any_number_of_ranks():
    alone = [piece for rank in Split(1, 64, whole_groups=True).slices(1000) for piece in rank]
    for ranks in (2, 3, 4):
        assert [piece for rank in Split(ranks, 64, whole_groups=True).slices(1000) for piece in rank] == alone


def test_no_group_is_a_lone_left_over_sample():
    assert [piece.count for piece in Split(1, 64, whole_groups=True).slices(129)[0]] == [43, 43, 43]


def test_a_batch_larger_than_the_dataset_is_refused(digits):
    with pytest.raises(Problem, match="global_batch 2000 is larger than the 1437 training samples: use --set"):
        Batches(digits, 0).next(Progress(), 2000, Split(1, 64))
