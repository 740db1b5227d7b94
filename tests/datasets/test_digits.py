from __future__ import annotations

import torch

from bigbatch import parts
from bigbatch.datasets import load


def test_the_split_is_complete_disjoint_and_even() -> None:
    from sklearn.datasets import load_digits

    dataset = load(parts.configure("datasets", "digits"))
    assert (len(dataset.train), len(dataset.test), dataset.sample_shape) == (1437, 360, (1, 8, 8))
    test_share = torch.bincount(dataset.test.labels) / torch.bincount(
        torch.cat([dataset.train.labels, dataset.test.labels])
    )
    assert (test_share - 0.2).abs().max() < 0.006
    both = [part.fetch(torch.arange(len(part))) for part in (dataset.train, dataset.test)]
    ours = sorted(
        (*image.flatten().tolist(), label.item())
        for images, labels in both
        for image, label in zip(images, labels, strict=True)
    )
    digits = load_digits()
    theirs = sorted(
        (*(image.flatten() / 16).tolist(), int(label))
        for image, label in zip(digits.images, digits.target, strict=True)
    )
    assert ours == theirs  # sixteenths are exact, so each of the 1,797 samples is there once


def test_the_split_stays_what_it_is() -> None:
    # results on another split could not be compared: a changed hash is a changed dataset
    assert load(parts.configure("datasets", "digits")).hash.startswith("fd9d2271")
