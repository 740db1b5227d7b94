import torch

from bigbatch.training import micro_batch


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
