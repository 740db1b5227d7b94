"""Samples of the training set that stand in for the test set."""

from __future__ import annotations

import pytest
import torch

from bigbatch import datasets, parts
from bigbatch.errors import Problem


def held_out(**options) -> datasets.Dataset:
    return datasets.load(parts.configure("datasets", {"name": "held_out", "of": "digits", **options}))


def test_held_out_samples_are_training_samples_of_every_class_and_in_no_other_part():
    whole = datasets.load(parts.configure("datasets", "digits"))
    part = held_out(fraction=0.25, seed=1)
    train_rows, test_rows = part.train.chosen, part.test.chosen
    assert sorted([*train_rows.tolist(), *test_rows.tolist()]) == list(range(1437))
    shares = torch.bincount(part.test.labels).float() / torch.bincount(whole.train.labels)
    assert ((shares - 0.25).abs() < 0.01).all()
    inputs, targets = part.test.fetch(torch.tensor([5]))
    assert torch.equal(inputs, whole.train.fetch(test_rows[5:6])[0])
    assert targets == whole.train.labels[test_rows[5]]
    assert held_out(fraction=0.25, seed=1).hash == part.hash
    assert len({part.hash, held_out(fraction=0.25, seed=2).hash, whole.hash}) == 3


def test_files_of_earlier_versions_can_be_read():
    old = {"name": "bigbatch.filters._held_out:held_out", "of": {"name": "digits"}, "data_dir": None}
    config = parts.configure("datasets", old)
    assert config == parts.configure("datasets", {"name": "held_out", "of": "digits", "fraction": 0.2, "seed": 0})
    assert "bigbatch" not in config.model_dump_json()
    assert datasets.load(config).hash == held_out().hash


@pytest.mark.parametrize("fraction", [0, 1, -0.1])
def test_a_fraction_that_leaves_one_part_empty_is_refused(fraction):
    with pytest.raises(Problem, match="fraction"):
        held_out(fraction=fraction)
