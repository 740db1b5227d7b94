"""A result decided again with other settings: the same as if it had been filtered with them."""

from __future__ import annotations

import re

import filter_parts
import numpy as np
import pytest
import torch

from bigbatch import filters
from bigbatch.curation import FilterRequest, filter_dataset
from bigbatch.errors import Problem

EACH = {str(index): 1.0 + index / 2 for index in range(10)}
SETTINGS = [
    {"mode": "fraction", "drop": 0.25},
    {"mode": "fraction", "drop": 0.1, "per_class": False, "min_samples": 9},
    {"mode": "paper", "min_samples": 5},
    {"mode": "manual", "eps": 2.5},
    {"mode": "relative", "eps": 2.5},
    {"mode": "manual", "eps": EACH, "min_samples": 3},
]


@pytest.fixture(scope="module", params=["none", "tsne"])
def result(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("result") / "kept.npz"
    settings = [f"reducer={request.param}", "components=4", "iterations=60", "min_samples=4"]
    filter_dataset(FilterRequest("digits", out=out, network="filter_parts:Net", settings=settings, quiet=True))
    return filters.load(out)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "-".join(map(str, settings.values()))[:30])
def test_it_equals_a_filter_with_those_settings(result, settings):
    options = {**{k: v for k, v in result.manifest.filter.items() if k not in ("name", "network")}, **settings}
    try:
        fresh = filters.network(filter_parts.Net(), filter_parts.digits(), **options)
    except Problem as problem:  # the paper's eps may leave nothing of a class, whoever decides
        with pytest.raises(Problem, match=re.escape(str(problem))):
            filters.decide_again(result, **settings)
        return
    again = filters.decide_again(result, **settings)
    assert torch.equal(again.mask, fresh.mask)
    assert torch.equal(again.score, fresh.score)
    assert again.manifest.info["eps"] == fresh.info["eps"]
    assert again.manifest.info["notes"] == fresh.info["notes"]
    np.testing.assert_array_equal(again.arrays["cluster"], fresh.arrays["cluster"])
    assert again.manifest.counts.kept == fresh.mask.sum()


def test_eps_star_and_its_decision_can_be_had_from_the_file_alone(result):
    places, labels = result.arrays.get("points", result.arrays["map"]), result.arrays["label"]
    star = filters.eps_star(places, labels, 4)
    assert star.dtype == np.float64
    np.testing.assert_array_equal(star, result.score.numpy())
    eps = filters.decide_eps(star, labels, "fraction", drop=0.1)
    assert {str(index): radius for index, radius in eps.items()} == result.manifest.info["eps"]
    np.testing.assert_array_equal(filters.mask_at(star, labels, eps), result.mask)
    clusters = filters.cluster_labels(places, labels, eps, 4)
    np.testing.assert_array_equal(clusters, result.arrays["cluster"])
    np.testing.assert_array_equal(clusters == -1, ~result.mask)


def test_what_is_written_rebuilds_bit_for_bit_with_the_history_of_overrides(result, tmp_path):
    dropped, kept = (np.flatnonzero(result.mask.numpy() == value)[:4].tolist() for value in (False, True))
    history = [
        {"at": "2026-01-01T00:00:00+00:00", "samples": dropped, "keep": True, "reason": "fine"},
        {"at": "2026-01-01T00:01:00+00:00", "samples": kept, "keep": False, "reason": "blurred"},
        {"at": "2026-01-01T00:02:00+00:00", "samples": kept[:1], "keep": None, "reason": "not that one"},
        {"at": "2026-01-01T00:03:00+00:00", "samples": kept[1:], "keep": True, "reason": "?", "undone": True},
    ]
    again = filters.decide_again(result, overrides=history, mode="manual", eps=EACH, min_samples=3)
    saved = filters.save(tmp_path / "sub" / "again.npz", again)
    read = filters.load(saved.path)
    assert read.mask[dropped].all()
    assert not read.mask[kept[1:]].any()
    assert read.mask[kept[0]] == read.filter_mask[kept[0]]
    assert read.manifest.overrides == history
    rebuilt = filters.rebuild(saved.path)
    assert torch.equal(rebuilt.mask, read.mask)
    assert torch.equal(rebuilt.score, read.score)
    later = filters.decide_again(read, mode="fraction", drop=0.3)  # the person's word stands over the new decision
    assert later.mask[dropped].all()
    assert later.manifest.filter["eps"] is None


def test_what_an_earlier_filter_dropped_stays_out(result, tmp_path):
    first = filters.save(tmp_path / "first.npz", result)
    settings = [f"after={first.path}", "reducer=none", "drop=0.05"]
    filter_dataset(
        FilterRequest("digits", out=tmp_path / "k.npz", network="filter_parts:Net", settings=settings, quiet=True)
    )
    second = filters.load(tmp_path / "k.npz")
    places = second.arrays.get("points", second.arrays["map"])
    np.testing.assert_array_equal(filters.eps_star(places, second.arrays["label"], 5), second.score)
    for options in ({"drop": 0.2}, {"drop": 0.2, "per_class": False}, {"mode": "manual", "eps": 1e9}):
        again = filters.decide_again(second, **options)
        assert not again.mask[~first.mask].any()
    assert torch.equal(again.mask, first.mask)  # at an eps without end nothing else is dropped
    assert (second.arrays["prediction"] >= 0).all()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"mode": "paper", "min_samples": 7}, "mode paper has min_samples 5"),
        ({"mode": "manual", "eps": 1e-9}, "would drop every sample of class .*use a larger eps"),
        ({"mode": "manual"}, "set eps for mode=manual"),
        ({"min_samples": 500}, "every class has fewer than min_samples 500"),
        ({"perplexity": 5}, "'perplexity' would change the map, which is computed already"),
        ({"mode": "manual", "eps": {"0": 1.0}}, "eps must name each class once, but is wrong for 1, 2"),
    ],
)
def test_settings_that_cannot_be_are_refused(result, settings, sentence):
    with pytest.raises(Problem, match=sentence):
        filters.decide_again(result, **settings)


def test_overrides_that_empty_a_class_are_refused(result):
    everything = np.flatnonzero(result.arrays["label"] == 4).tolist()
    history = [{"at": "", "samples": everything, "keep": False, "reason": "?"}]
    with pytest.raises(Problem, match="the overrides would drop every sample of class 4: undo some of them"):
        filters.decide_again(result, overrides=history)


def test_a_filter_without_a_radius_is_refused(tmp_path):
    filter_dataset(FilterRequest("digits", out=tmp_path / "random.npz", filter_name="random", quiet=True))
    with pytest.raises(Problem, match=r"is by 'random', so there is no radius to choose: give a result of"):
        filters.decide_again(filters.load(tmp_path / "random.npz"), drop=0.2)
