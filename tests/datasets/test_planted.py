"""Noise that is planted: as much as was requested, of the kind requested, and nothing else is changed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bigbatch import datasets, parts
from bigbatch.datasets import planted
from bigbatch.errors import Problem


def digits(**options):
    return planted.plant(parts.configure("datasets", {"name": "planted", "of": "digits", **options}))


@pytest.mark.parametrize("kind", planted.KINDS)
def test_each_kind_changes_its_samples_and_no_other(kind):
    original = datasets.load(parts.configure("datasets", "digits")).train
    dataset, kind_of = digits(kinds={kind: 0.1}, seed=3)
    chosen = torch.from_numpy(kind_of >= 0)
    assert int(chosen.sum()) == round(0.1 * len(original))
    same_image = (dataset.train.images == original.images).flatten(1).all(1)
    same_label = dataset.train.labels == original.labels
    assert same_image[~chosen].all()
    assert same_label[~chosen].all()
    if kind in ("flip", "confuse"):
        assert same_image.all()
        assert not same_label[chosen].any()
    else:
        assert same_label.all()
        assert same_image[chosen].float().mean() < 0.1  # a digit may look the same with its tiles in another order
        assert int(dataset.train.images.max()) <= 16


def test_what_the_kinds_look_like():
    kinds = {"constant": 0.05, "dark": 0.05, "duplicate": 0.05, "noise": 0.05, "shuffle": 0.05, "invert": 0.05}
    dataset, kind_of = digits(kinds=kinds)
    original = datasets.load(parts.configure("datasets", "digits")).train
    images = {kind: dataset.train.images[kind_of == number].float() for number, kind in enumerate(kinds)}
    assert (images["constant"].flatten(1).std(1) == 0).all()
    assert images["dark"].max() <= 1
    chosen = np.flatnonzero(kind_of == list(kinds).index("duplicate"))
    sources = torch.stack(
        [(original.images == dataset.train.images[row]).flatten(1).all(1).int().argmax() for row in chosen]
    )
    assert (original.labels[sources] != dataset.train.labels[chosen]).all()
    assert len(sources.unique()) > 0.8 * len(sources)  # not one image over and over
    assert images["noise"].mean() == pytest.approx(8, abs=0.5)
    before = original.images[kind_of == list(kinds).index("shuffle")].flatten(1).sort().values
    assert torch.equal(images["shuffle"].flatten(1).sort().values, before.float())
    assert torch.equal(16 - images["invert"], original.images[kind_of == list(kinds).index("invert")].float())


def test_seeds_and_sizes():
    first, again, other = (digits(samples=200, seed=seed) for seed in (1, 1, 2))
    assert len(first[0].train) == 200
    assert first[0].hash == again[0].hash != other[0].hash
    assert np.bincount(first[1] + 1).tolist() == [200 - 7, 4, 1, 1, 1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kinds": {"flipp": 0.1}}, "did you mean 'flip'"),
        ({"kinds": {"flip": 0.6, "noise": 0.5}}, "plant less than all samples"),
        ({"of": {"name": "held_out", "of": "digits"}}, "does not hold images in memory"),
    ],
)
def test_what_cannot_be_planted_is_refused(options, sentence):
    with pytest.raises(Problem, match=sentence):
        digits(**options)
