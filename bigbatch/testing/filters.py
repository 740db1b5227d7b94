"""The contract of a filter: `keep(dataset, config) -> Kept`, asked of 500 digits."""

from __future__ import annotations

import functools
import json

import torch

from bigbatch import datasets, parts
from bigbatch.datasets import Dataset
from bigbatch.filters import Kept
from bigbatch.testing.common import CheckedPart


def check_one_value_per_sample(part: CheckedPart) -> None:
    dataset, kept = _digits(), _keep(part)
    count = len(dataset.train)
    assert (kept.mask.dtype, kept.mask.shape, kept.score.shape) == (torch.bool, (count,), (count,))
    assert bool(kept.score.isfinite().all())
    assert all(len(array) == count for array in kept.arrays.values())
    left = torch.bincount(dataset.train.labels[kept.mask], minlength=len(dataset.classes))
    assert bool((left > 0).all()), "a class lost all of its samples"


def check_it_is_repeatable_and_only_reads(part: CheckedPart) -> None:
    """The dataset and torch's random numbers are as before."""
    labels = _digits().train.labels.clone()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first, again = _keep(part), _keep(part)
    assert torch.equal(torch.rand(3), expected), "torch's random numbers were used"
    assert torch.equal(first.mask, again.mask)
    assert torch.equal(first.score, again.score)
    assert torch.equal(labels, _digits().train.labels)
    assert json.loads(json.dumps(first.info)) == json.loads(json.dumps(again.info))


@functools.cache
def _digits() -> Dataset:
    return datasets.load(parts.configure("datasets", "digits"))


def _keep(part: CheckedPart) -> Kept:
    kept: Kept = part.module.keep(_digits(), part.configure())
    return kept
