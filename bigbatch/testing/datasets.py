"""The contract of a dataset: `load(config, data_dir) -> Dataset`, whose samples are pure functions of (seed, epoch)."""

from __future__ import annotations

from typing import Any

import torch

from bigbatch import datasets, rng
from bigbatch.datasets import Dataset
from bigbatch.testing.common import CheckedPart


def check_rows_do_not_depend_on_order_or_split(part: CheckedPart) -> None:
    samples = _samples(_load(part))
    count = min(len(samples), 40)
    order = rng.permutation(count, 1)
    for epoch in (None, 0, 3):
        whole = samples.fetch(torch.arange(count), seed=2, epoch=epoch)
        pieces = [samples.fetch(piece, seed=2, epoch=epoch) for piece in order.split(3)]
        for side in (0, 1):
            assert torch.equal(torch.cat([piece[side] for piece in pieces]), whole[side][order])


def check_augmentation_depends_on_seed_and_epoch_alone(part: CheckedPart) -> None:
    samples, again = _samples(_load(part)), _samples(_load(part))
    some = torch.arange(min(len(samples), 10))
    first = samples.fetch(some, seed=1, epoch=0)[0]
    samples.fetch(some, seed=9, epoch=9)  # an earlier fetch must not matter
    assert torch.equal(first, again.fetch(some, seed=1, epoch=0)[0])
    assert torch.equal(samples.fetch(some, seed=1)[0], again.fetch(some, seed=2)[0]), "augmented without an epoch"


def check_shapes_dtypes_and_labels(part: CheckedPart) -> None:
    dataset = _load(part)
    samples = _samples(dataset)
    inputs, targets = samples.fetch(torch.arange(len(samples)), epoch=0)
    assert inputs.shape == (len(samples), *dataset.sample_shape)
    assert targets.dtype == torch.int64
    assert 0 <= int(targets.min()) <= int(targets.max()) < len(dataset.classes)
    if dataset.task == "classify":
        assert inputs.dtype == torch.float32
        assert torch.equal(targets, dataset.train.labels)
        assert dataset.test.fetch(torch.arange(len(dataset.test)))[0].shape[1:] == dataset.sample_shape
    else:
        assert torch.equal(inputs[:, 1:], targets[:, :-1])


def check_hash_is_stable(part: CheckedPart) -> None:
    assert len(_load(part).hash) == 64
    assert _load(part).hash == _load(part).hash


def _load(part: CheckedPart) -> Dataset:
    return datasets.load(part.configure(), None)


def _samples(dataset: Dataset) -> Any:
    return dataset.train.as_streams(4) if dataset.task == "language" else dataset.train  # type: ignore[attr-defined]
