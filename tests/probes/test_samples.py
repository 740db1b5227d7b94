"""Samples of any kind, by index."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from bigbatch.errors import Problem
from bigbatch.probes.measurement.samples import read_samples

X, Y = torch.arange(40.0).view(20, 2), torch.arange(20)


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        TensorDataset(X, Y),
        DataLoader(TensorDataset(X, Y), batch_size=8),
        DataLoader(TensorDataset(X, Y), batch_size=None),  # sample by sample
        ((x, y) for x, y in zip(X.split(7), Y.split(7), strict=True)),
    ],
    ids=["tensors", "dataset", "loader", "samples", "generator"],
)
def test_samples_of_any_kind_have_numbers(data):
    found, notes = read_samples(data)
    inputs, targets = found.fetch(torch.tensor([3, 17]))
    assert len(found) == 20
    assert (inputs.tolist(), targets.tolist(), notes) == ([[6.0, 7.0], [34.0, 35.0]], [3, 17], [])


def test_what_never_ends_is_read_as_far_as_it_is_needed_and_says_so():
    def forever():
        while True:
            yield {"x": torch.zeros(1000, 3), "z": torch.ones(1000)}, torch.zeros(1000)

    found, notes = read_samples(forever())
    assert len(found) == 17_000
    assert set(found.fetch(torch.tensor([0]))[0]) == {"x", "z"}
    assert notes == ["only the first 17,000 samples of the generator were read, and count as all"]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (iter([]), "has no samples: give one that yields"),
        (iter([torch.zeros(3)]), "must yield pairs of"),
        (3, "int cannot be probed with"),
    ],
)
def test_what_is_no_data_is_told(data, sentence):
    with pytest.raises(Problem, match=sentence):
        read_samples(data)
