import numpy as np
import torch

from bigbatch import rng


def test_bits_are_those_of_splitmix64():
    # the first output of the reference generator with seed 0
    assert int(rng.bits(0)[0]) == 0xE220A8397B1DCDAF


def test_one_key_gives_the_same_bits_alone_and_among_many():
    many = rng.bits(7, np.arange(100), 3)
    assert [rng._scalar_bits(7, i, 3) for i in range(100)] == many.tolist()


def test_every_part_of_a_key_counts():
    keys = [(1, 2, 3), (1, 3, 2), (2, 1, 3), (1, 2), (1, 2, 3, 0)]
    assert len({int(rng.bits(*key)[0]) for key in keys}) == len(keys)


def test_uniform_numbers_are_uniform():
    numbers = rng.uniform(0, np.arange(100_000))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts, _ = np.histogram(numbers, bins=20, range=(0, 1))
    assert abs(counts - 5000).max() < 5 * np.sqrt(5000)


def test_a_permutation_holds_every_number_once_and_depends_on_its_key():
    order = rng.permutation(1000, 1, 2)
    assert torch.equal(order.sort().values, torch.arange(1000))
    assert torch.equal(order, rng.permutation(1000, 1, 2))
    assert not torch.equal(order, rng.permutation(1000, 1, 3))


def test_seeding_torch_makes_dropout_a_function_of_the_key():
    rng.seed_torch(5, 1)
    first = torch.rand(4)
    rng.seed_torch(5, 1)
    assert torch.equal(first, torch.rand(4))
    rng.seed_torch(5, 2)
    assert not torch.equal(first, torch.rand(4))
