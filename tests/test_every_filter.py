"""What holds for every filter, found by looking at the folder."""

from __future__ import annotations

import json
from typing import Any

import filter_parts
import numpy as np
import pytest
import torch

from bigbatch import filters, parts, rng
from bigbatch.errors import Problem
from bigbatch.filters import Kept

NAMES = parts.names("filters")
# what a filter cannot do without, and what makes it quick
OPTIONS: dict[str, dict[str, Any]] = {
    "network": {"network": "filter_parts:Net", "reducer": "none"},
    "grid": {"network": "filter_parts:Net", "reducer": "none", "cells": 5},
    "semdedup": {"network": "filter_parts:Net"},
    "el2n": {"model": "mlp", "networks": 1, "epochs": 1},
    "forgetting": {"model": "mlp", "networks": 1, "epochs": 3},
    "grand": {"model": "mlp", "networks": 1, "epochs": 1},
    "ccs": {"by": {"name": "el2n", "model": "mlp", "networks": 1, "epochs": 1}, "strata": 10},
    "confident": {"model": "mlp", "networks": 2, "epochs": 2},
    "loss": {"model": "mlp", "folds": 2, "epochs": 1},
    "neighbours": {"network": "filter_parts:Net"},
    "junk": {"network": "filter_parts:Net"},
    "combined": {"network": "filter_parts:Net"},
}
NEEDS = {"confident": "cleanlab"}


@pytest.fixture(scope="module")
def dataset():
    return filter_parts.digits(500)


@pytest.fixture(scope="module")
def other(tmp_path_factory, dataset):
    """A result of another filter, with unlike counts for each class."""
    path = tmp_path_factory.mktemp("other") / "other.npz"
    mask = torch.arange(500) % 7 > 0
    mask[(dataset.train.labels == 3) & (torch.arange(500) > 250)] = False
    np.savez(path.with_name("map.npz"), map=rng.uniform(1, np.arange(1000)).reshape(500, 2))
    config = parts.configure("filters", "random")
    kept = Kept(torch.zeros(500), mask)
    return filters.save(path, filters.create_result(kept, dataset, parts.configure("datasets", "digits"), config)).path


def config_of(name, other, **options):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    files = {"kept": {"path": str(other)}, "on_map": {"network": str(other.with_name("map.npz"))}}
    needed = files.get(name) or OPTIONS.get(name, {})
    return parts.configure("filters", {"name": name, **needed, **options})


def keep(name, dataset, other, **options):
    config = config_of(name, other, **options)
    return parts.find("filters", name).keep(dataset, config)


@pytest.mark.parametrize("name", NAMES)
def test_score_mask_and_info_have_one_value_a_sample_and_survive_a_file(name, dataset, other, tmp_path):
    kept = keep(name, dataset, other)
    assert (kept.mask.dtype, kept.mask.shape, kept.score.shape) == (torch.bool, (500,), (500,))
    assert kept.score.isfinite().all()
    assert all(len(array) == 500 for array in kept.arrays.values())
    left = torch.bincount(dataset.train.labels[kept.mask], minlength=10)
    assert (left > 0).all()
    config = config_of(name, other)
    filters.save(
        tmp_path / "kept.npz", filters.create_result(kept, dataset, parts.configure("datasets", "digits"), config)
    )
    read = filters.load(tmp_path / "kept.npz", dataset)
    assert torch.equal(read.mask, kept.mask)
    assert torch.equal(read.score, kept.score)
    assert read.manifest.counts.kept == kept.mask.sum()
    assert parts.configure("filters", read.manifest.filter) == config


@pytest.mark.parametrize("name", NAMES)
def test_it_is_repeatable_and_does_not_touch_the_dataset_or_random_numbers_to_come(name, dataset, other, monkeypatch):
    labels = dataset.train.labels.clone()
    monkeypatch.setattr(dataset.test, "fetch", lambda *_, **__: pytest.fail("the test set was looked at"))
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first, again = keep(name, dataset, other), keep(name, dataset, other)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first.mask, again.mask)
    assert torch.equal(first.score, again.score)
    assert torch.equal(labels, dataset.train.labels)
    assert json.loads(json.dumps(first.info)) == json.loads(json.dumps(again.info))


@pytest.mark.parametrize("name", NAMES)
def test_larger_scores_are_dropped_first_within_a_class(name, dataset, other):
    if name in ("kept", "confident"):
        pytest.skip("its mask is somebody else's")
    kept = keep(name, dataset, other)
    for index in range(10):
        of_class = dataset.train.labels == index
        dropped, stays = kept.score[of_class & ~kept.mask], kept.score[of_class & kept.mask]
        assert len(dropped) == 0 or dropped.min() >= stays.max()


@pytest.mark.parametrize("name", [name for name in NAMES if "like" in parts.find("filters", name).Config.model_fields])
def test_it_can_be_made_as_large_as_another_filters_result(name, dataset, other):
    target = filters.load(other).mask
    same_classes = keep(name, dataset, other, like=str(other)).mask
    labels = dataset.train.labels
    assert torch.equal(torch.bincount(labels[same_classes]), torch.bincount(labels[target]))
    same_total = keep(name, dataset, other, like=str(other), per_class=False).mask
    assert same_total.sum() == target.sum()
    half = keep(name, dataset, other, drop=0.5, **({"count": "drop"} if name == "confident" else {})).mask
    assert [int((~half[labels == index]).sum()) for index in range(10)] == [
        round(0.5 * int((labels == index).sum())) for index in range(10)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is_and_refuses_what_it_does_not_know(name, other):
    assert 20 < len(parts.summary("filters", name)) <= 120
    assert parts.summary("filters", name).endswith(".")
    config = config_of(name, other)
    assert type(config).model_validate_json(config.model_dump_json()) == config
    with pytest.raises(ValueError):
        config.name = "other"
    with pytest.raises(Problem, match="no option 'no_such_option'"):
        config_of(name, other, no_such_option=1)
