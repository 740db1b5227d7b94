"""The network filter end to end on digits: planted noise, controls, cache, manifest, bad input."""

from __future__ import annotations

import json
import logging
import os
import shutil
from dataclasses import asdict

import filter_parts
import numpy as np
import pytest
import torch
from sklearn.cluster import DBSCAN

from bigbatch import datasets, filters, parts
from bigbatch.cli import main
from bigbatch.curation import FilterRequest, filter_dataset
from bigbatch.errors import Notice, Problem
from bigbatch.filters import kept_indices, network, rebuild
from bigbatch.filters.pipeline import cache, embedding, results
from bigbatch.run import Run
from bigbatch.training.loop import train

FLIPPED = "filter_parts:flipped"


@pytest.fixture(scope="module")
def flipped_run(tmp_path_factory):
    """A network that learned from digits of which 5 % carry a wrong label."""
    torch.set_num_threads(1)
    runs = tmp_path_factory.mktemp("runs")
    run = Run(
        name="flipped",
        dataset=FLIPPED,
        model="cnn",
        global_batch=64,
        micro_batch=64,
        optimizer={"name": "momentum", "lr": 0.05},
        epochs=4,
    )
    train(run, runs_dir=runs)
    return runs / run.folder_name


@pytest.fixture(scope="module")
def result(flipped_run, tmp_path_factory):
    """The filter's result, with the default options, as the command writes it."""
    out = tmp_path_factory.mktemp("result") / "kept.npz"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(out.parent))
        filter_dataset(FilterRequest(FLIPPED, out=out, network=str(flipped_run), quiet=True))
    return out


def blobs(**options):
    dataset, features = filter_parts.two_blobs()
    return dataset, network(features, dataset, reducer="none", **options)


def test_planted_noise_is_found_at_five_times_its_base_rate_or_more(result):
    dropped = ~filters.load(result).mask
    wrong = filter_parts.flipped_samples()
    base_rate = len(wrong) / len(dropped)
    assert dropped[wrong].sum() / dropped.sum() >= 5 * base_rate
    assert dropped.sum() == sum(round(0.1 * int((filters.load(result).labels == index).sum())) for index in range(10))


def test_what_is_dropped_is_dbscans_noise_on_the_map_class_by_class(result):
    saved = filters.load(result)
    labels, points = saved.arrays["label"], saved.arrays["map"]
    for index, (name, eps) in enumerate(saved.manifest.info["eps"].items()):
        members = labels == index
        above, below = (
            DBSCAN(eps=eps * factor, min_samples=5).fit_predict(points[members].astype(np.float64))
            for factor in (1 + 1e-9, 1 - 1e-9)
        )
        dropped = ~saved.mask.numpy()[members]
        # between the two lie only samples that share the eps* of the border
        assert dropped[above == -1].all()
        assert (below == -1)[dropped].all()
        np.testing.assert_array_equal(saved.arrays["cluster"][members], np.where(dropped, -1, above))
        counts = saved.manifest.counts.by_class[name]
        assert counts.dropped == dropped.sum() == round(0.1 * len(dropped))


def test_the_manifest_rebuilds_the_same_mask_and_score_bit_for_bit_without_the_cache(result):
    saved = filters.load(result)
    again = rebuild(result.with_suffix(".json"))
    assert torch.equal(again.mask, saved.mask)
    assert torch.equal(again.score, saved.score)
    assert set(again.arrays) == {"map", "cluster", "prediction", "confidence", "loss"}
    for name, array in again.arrays.items():
        np.testing.assert_array_equal(array, saved.arrays[name])
    assert (again.arrays["prediction"] == saved.arrays["label"]).mean() > 0.8  # it learned them


def test_a_run_trains_on_the_result_and_tests_on_all_of_the_test_set(result, tmp_path):
    run = Run(
        dataset=FLIPPED,
        model="mlp",
        global_batch=64,
        optimizer={"name": "sgd", "lr": 0.1},
        epochs=1,
        filter=str(result),
    )
    summary = train(run, runs_dir=tmp_path)
    assert summary["samples"] == filters.load(result).manifest.counts.kept
    assert (
        kept_indices(run.filter, filter_parts.flipped()).tolist() == np.flatnonzero(filters.load(result).mask).tolist()
    )


def test_another_eps_or_fraction_does_not_make_another_map(result, flipped_run, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(result.parent))
    monkeypatch.setattr(embedding, "embed", lambda *_, **__: pytest.fail("t-SNE was computed again"))
    dataset = filter_parts.flipped()
    small = network(flipped_run, dataset, drop=0.02)
    large = network(flipped_run, dataset, mode="manual", eps=1.5, min_samples=8)
    assert small.mask.sum() > large.mask.sum() > 0
    assert torch.equal(small.score, filters.load(result).score)


def test_a_damaged_cache_file_is_made_again(tmp_path):
    with cache.use_folder(tmp_path):
        made = {"x": np.arange(5.0)}
        assert (cache.load_or_compute("pca", {"a": 1}, lambda: made)["x"] == made["x"]).all()
        (file,) = (tmp_path / "pca").iterdir()
        content = bytearray(file.read_bytes())
        content[len(content) // 3] ^= 1
        file.write_bytes(content)
        assert (cache.load_or_compute("pca", {"a": 1}, lambda: made)["x"] == made["x"]).all()
        assert cache.load_or_compute("pca", {"a": 1}, lambda: pytest.fail("not kept"))["x"][3] == 3


COMPILED_FIRST = [pytest.param(name, marks=pytest.mark.slow) for name in ("umap", "pacmap")]


@pytest.mark.parametrize("reducer", ["tsne", "none", *COMPILED_FIRST])
def test_every_reducer_is_repeatable_and_keeps_classes_apart(reducer):
    if reducer in ("umap", "pacmap"):
        pytest.importorskip(reducer)
    dataset, features = filter_parts.two_blobs((150, 150), outliers=0)
    wide = np.pad(features, ((0, 0), (0, 4))).astype(np.float32)
    options = {"perplexity": 10, "iterations": 100, "seed": 1, "jobs": 1}
    first, again = (embedding.embed(wide, reducer, **options) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    labels = dataset.train.labels.numpy()
    middles = np.stack([first[labels == index].mean(0) for index in (0, 1)])
    nearer = np.linalg.norm(first[:, None] - middles, axis=2).argmin(1)
    assert (nearer == labels).mean() > 0.98


def test_outliers_go_first_and_each_class_by_its_own_density():
    _, kept = blobs(drop=0.05)
    assert np.flatnonzero(~kept.mask).tolist() == [0, 1, 2, 61, 62]  # 5 % of 60 and of 40
    assert sorted(kept.score.argsort(descending=True)[:6].tolist()) == [0, 1, 2, 60, 61, 62]
    assert set(kept.info["eps"]) == {"class 0", "class 1"}


def test_a_fraction_over_all_may_take_unlike_shares_of_classes():
    dataset, features = filter_parts.two_blobs((60, 40), outliers=0)
    features[dataset.train.labels == 1] *= 50  # one class is spread out
    kept = network(features, dataset, reducer="none", drop=0.2, per_class=False)
    assert not kept.mask[60:].all()
    assert kept.mask[:60].all()
    assert len(set(kept.info["eps"].values())) == 1


def test_paper_and_manual_modes_are_plain_dbscan_and_warn_of_a_fixed_eps():
    _, kept = blobs(mode="paper")
    points = kept.arrays["map"]  # the features are two-dimensional
    noise = np.concatenate([DBSCAN(eps=0.5, min_samples=5).fit_predict(p) == -1 for p in (points[:60], points[60:])])
    np.testing.assert_array_equal(~kept.mask.numpy(), noise)
    assert any("fixed eps cannot be compared" in note for note in kept.info["notes"])
    _, manual = blobs(mode="manual", eps={"class 0": 0.5, "class 1": 1e6})
    np.testing.assert_array_equal(~manual.mask.numpy()[:60], noise[:60])
    assert manual.mask[60:].all()


def test_a_person_overrides_and_the_history_rebuilds(result, tmp_path):
    copy = tmp_path / "kept.npz"
    copy.write_bytes(result.read_bytes())
    saved = filters.load(copy)
    dropped, kept = (np.flatnonzero(saved.mask.numpy() == value)[:3].tolist() for value in (False, True))
    saved = filters.override(saved, dropped, keep=True, reason="looked fine")
    saved = filters.override(saved, [*kept, dropped[0]], keep=False, reason="blurred")
    read = filters.load(copy)
    assert read.mask[dropped].tolist() == [False, True, True]  # the later word counts
    assert not read.mask[kept].any()
    assert [entry["reason"] for entry in read.manifest.overrides] == ["looked fine", "blurred"]
    assert read.manifest.counts.kept == read.mask.sum()
    assert json.loads(copy.with_suffix(".json").read_text()) == asdict(read.manifest)
    assert torch.equal(
        results.replay_overrides(torch.from_numpy(read.arrays["filter_mask"]), read.manifest.overrides), read.mask
    )
    with pytest.raises(Problem, match="numbered 0 to 1436, got 5000"):
        filters.override(read, [5000], keep=False, reason="?")
    whole_class = np.flatnonzero(read.arrays["label"] == 3)
    with pytest.raises(Problem, match="this override would drop every sample of class 3: leave some of its samples in"):
        filters.override(read, whole_class, keep=False, reason="?")
    assert torch.equal(filters.load(copy).mask, read.mask)


def test_only_what_an_earlier_filter_kept_is_looked_at(tmp_path):
    dataset, first = blobs(drop=0.05)
    config = parts.configure("filters", {"name": "random"})
    filters.save(
        tmp_path / "first.npz", filters.create_result(first, dataset, parts.configure("datasets", "digits"), config)
    )
    _, second = blobs(drop=0.05, after=str(tmp_path / "first.npz"))
    assert not second.mask[~first.mask].any()
    assert torch.isinf(second.score[~first.mask]).all()
    assert (~second.mask).sum() == 5 + 3 + 2  # 5 % of 57 and of 38 more
    assert not second.mask[60]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"min_samples": 61}, "every class has fewer than min_samples 61 samples.*use min_samples=60 or less"),
        ({"mode": "manual", "eps": 1e-6}, "would drop every sample of class class 0, class 1: use a larger eps"),
        ({"mode": "manual", "eps": {"class 0": 1.0}}, "eps must name each class once, but is wrong for class 1"),
    ],
)
def test_a_filter_that_cannot_be_is_refused_in_one_sentence(options, sentence):
    with pytest.raises(Problem, match=sentence):
        blobs(**options)


def test_a_fraction_is_exact_where_samples_share_an_eps_star():
    dataset, features = filter_parts.two_blobs((10, 10), outliers=0)
    # of each class 3 points lie together far from the rest: 2 of them are dropped, those with the larger numbers
    features[:10] = np.repeat([[0.0, 0.0], [9.0, 9.0]], [7, 3], axis=0)
    features[10:] = features[:10] + 100
    for per_class in (True, False):
        kept = network(features, dataset, reducer="none", drop=0.2, min_samples=4, per_class=per_class)
        assert int((~kept.mask).sum()) == 4
        np.testing.assert_array_equal(kept.arrays["cluster"] == -1, ~kept.mask)
    per_class = network(features, dataset, reducer="none", drop=0.2, min_samples=4)
    assert np.flatnonzero(~per_class.mask).tolist() == [8, 9, 18, 19]


def test_equal_eps_star_are_ordered_by_the_samples_own_k_distance():
    # with 3 samples, 1 is core at 2; 0 and 3 border on it at 2 as well, but are core at 3 only: they go first
    points, labels = np.array([[0.0], [1.0], [3.0], [9.0]]), np.zeros(4, int)
    star = filters.eps_star(points, labels, 3)
    np.testing.assert_allclose(star, [2, 2, 2, 6], rtol=1e-12)
    assert star[1] < star[0] < star[2] < star[3]
    assert [
        int((~filters.mask_at(star, labels, filters.decide_eps(star, labels, "fraction", d))).sum())
        for d in (0.25, 0.5, 0.75)
    ] == [1, 2, 3]


def test_a_class_smaller_than_min_samples_is_kept_whole_with_a_note():
    dataset, features = filter_parts.two_blobs((60, 3), outliers=0)
    kept = network(features, dataset, reducer="none", drop=0.2)
    assert kept.mask[60:].all()
    assert int((~kept.mask).sum()) == 12
    assert kept.score.isfinite().all()
    assert "classes with fewer than min_samples 5 are kept whole: class 1" in kept.info["notes"]
    assert (kept.arrays["cluster"][60:] == 0).all()
    for options in ({"mode": "relative", "eps": 2.0}, {"mode": "manual", "eps": 0.8}, {"per_class": False}):
        assert network(features, dataset, reducer="none", **options).mask[60:].all()


def test_automatic_jobs_are_counted_in_the_manifest_and_used_to_rebuild(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    settings = ["reducer=tsne", "iterations=20", "jobs=auto"]
    request = FilterRequest("digits", out=tmp_path / "k.npz", network="filter_parts:Net", settings=settings, quiet=True)
    manifest = filter_dataset(request)
    assert (manifest.filter["jobs"], manifest.info["map"]["jobs"]) == ("auto", 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    assert torch.equal(filters.rebuild(tmp_path / "k.npz").mask, filters.load(tmp_path / "k.npz").mask)


def test_a_relative_eps_drops_the_same_samples_at_any_scale():
    dataset, features = filter_parts.two_blobs()
    one, hundred = (network(features * scale, dataset, reducer="none", mode="relative", eps=1.5) for scale in (1, 128))
    assert torch.equal(one.mask, hundred.mask)
    assert 0 < int((~one.mask).sum()) < 30
    for name, members in (("class 0", slice(60)), ("class 1", slice(60, 100))):
        points = one.arrays["map"][members].astype(np.float64)
        median = np.median(np.sort(np.linalg.norm(points[:, None] - points, axis=2))[:, 4])  # itself is the first of 5
        assert one.info["eps"][name] == pytest.approx(1.5 * median)
    assert not any("fixed eps" in note for note in one.info["notes"])


def test_too_many_pairs_for_memory_cost_the_clusters_not_the_filter(monkeypatch):
    monkeypatch.setattr("bigbatch.filters.pipeline.decision.MAX_PAIRS", 1000)
    dataset, features = filter_parts.two_blobs()
    kept = network(features, dataset, reducer="none", mode="manual", eps=1e6)
    assert kept.mask.all()
    assert "cluster" not in kept.arrays
    assert any("million pairs of neighbours, too many to cluster in memory" in note for note in kept.info["notes"])
    with pytest.raises(Problem, match="choose a smaller eps for it"):
        filters.cluster_labels(features, dataset.train.labels.numpy(), {0: 1e6, 1: 1e6}, 5)


def test_the_papers_eps_is_fixed_so_that_another_mode_is_advised():
    dataset, features = filter_parts.two_blobs()
    with pytest.raises(
        Problem, match="class class 0, class 1: use mode=fraction or relative, or mode=manual with a larger eps"
    ):
        network(features * 1000, dataset, reducer="none", mode="paper")


@pytest.mark.slow
@pytest.mark.parametrize(("reducer", "options"), [("umap", {"perplexity": 1}), ("pacmap", {"seed": 2**40})])
def test_a_reducer_that_refuses_its_options_is_one_sentence(reducer, options):
    pytest.importorskip(reducer)
    dataset, features = filter_parts.two_blobs()
    with pytest.raises(
        Problem, match=rf"reducer '{reducer}' cannot compute a map with perplexity=.* \(.*\): use others"
    ):
        network(features, dataset, reducer=reducer, **{"perplexity": 10} | options)


@pytest.mark.filterwarnings("error")
def test_what_a_reducer_logs_becomes_a_notice_and_what_was_asked_for_is_no_news(capfd):
    logger = logging.getLogger("pacmap.pacmap")
    with embedding._warnings_as_notices("pacmap"):
        logger.warning("Warning: random state is set to 0.")  # a Notice would be an error here
        with pytest.warns(Notice, match="pacmap says: not deterministic"):
            logger.warning("not deterministic")
    assert capfd.readouterr().err == ""


def test_a_map_of_too_few_samples_is_refused_with_a_perplexity_that_fits():
    dataset, features = filter_parts.two_blobs((20, 20))
    with pytest.raises(Problem, match=r"perplexity 30 needs 90 neighbours but there are 40 samples: use perplexity=13"):
        network(features, dataset)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["mode=manual"], "set eps for mode=manual"),
        (["eps=0.3"], "set eps for mode=manual or relative only"),
        (["drop=1.0"], "drop should be less than 1"),
        (["perplexty=4"], "no option 'perplexty'; did you mean 'perplexity'"),
        (["drop"], "'drop' is not a setting"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(tmp_path, settings, sentence):
    with pytest.raises(Problem, match=sentence):
        filter_dataset(
            FilterRequest(
                "digits", out=tmp_path / "kept.npz", network="filter_parts:Net", settings=settings, quiet=True
            )
        )
    assert list(tmp_path.iterdir()) == []


def test_a_result_of_another_dataset_is_refused(result, tmp_path):
    digits = datasets.load(parts.configure("datasets", "digits"))
    with pytest.raises(Problem, match=r"was made for another dataset .*create it again for this one"):
        filters.load(result, digits)
    manifest = asdict(filters.load(result).manifest)
    manifest["dataset"]["config"] = {"name": "digits"}
    (tmp_path / "kept.json").write_text(json.dumps(manifest))
    with pytest.raises(Problem, match="was made for another dataset"):
        rebuild(tmp_path / "kept.json")


def test_a_network_that_changed_since_is_not_rebuilt_from(result, tmp_path):
    manifest = asdict(filters.load(result).manifest)
    manifest["info"]["network"]["hash"] = "0" * 64
    manifest["filter"]["reducer"] = "none"
    (tmp_path / "kept.json").write_text(json.dumps(manifest))
    with pytest.raises(Problem, match="have changed since"):
        rebuild(tmp_path / "kept.json")


def test_a_cut_or_foreign_file_is_refused(result, tmp_path):
    cut = tmp_path / "cut.npz"
    cut.write_bytes(result.read_bytes()[:-500])
    (tmp_path / "text.npz").write_text("hello")
    np.save(tmp_path / "array.npy", np.ones(3))
    for path in (cut, tmp_path / "text.npz", tmp_path / "array.npy", tmp_path / "missing.npz"):
        with pytest.raises(Problem, match=r"cannot be read .*: create it again with 'bigbatch filter'"):
            filters.load(path)


def test_the_function_is_a_function_however_the_file_is_imported():
    import importlib

    import bigbatch.filters

    module = importlib.import_module("bigbatch.filters.network")
    assert callable(bigbatch.filters.network)
    assert bigbatch.filters.network is module.network


def test_the_table_is_printed(flipped_run, result, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(result.parent))
    out = tmp_path / "kept.npz"
    with pytest.raises(SystemExit, match="0"):
        main(["filter", FLIPPED, "--out", str(out), "--network", str(flipped_run)])
    printed = capsys.readouterr().out
    kept = filters.load(out).manifest.counts.kept
    assert f"{100 * kept / 1437:.2f} % or {kept:,} samples kept" in printed
    assert "knee" in printed


def test_the_mask_is_part_of_a_run_that_trains_on_it(tmp_path):
    """Remade under the same name, a result is another run; a run described before does not take the new one."""
    path = tmp_path / "kept.npz"
    for drop in (0.1, 0.6):
        filter_dataset(FilterRequest("digits", out=path, filter_name="random", settings=[f"drop={drop}"], quiet=True))
        run = Run(dataset="digits", model="mlp", global_batch=64, optimizer="sgd", epochs=1, filter=str(path))
        assert Run.from_json(run.to_json()) == run
        if drop == 0.1:
            first = run
    assert run.hash != first.hash
    with pytest.raises(Problem, match="has changed since this run was created: restore it"):
        kept_indices(first.filter, datasets.load(first.dataset))


def test_no_filter_may_drop_a_whole_class(tmp_path):
    with pytest.raises(Problem, match=r"filter 'random' would drop every sample of class .*: let it drop less"):
        filter_dataset(
            FilterRequest(
                "digits", out=tmp_path / "kept.npz", filter_name="random", settings=["drop=0.999"], quiet=True
            )
        )
    assert not (tmp_path / "kept.npz").exists()


def test_a_cut_features_file_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    dataset = datasets.load(parts.configure("datasets", "digits"))
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.ReLU(), torch.nn.Linear(8, 10))
    options = {"reducer": "none", "min_samples": 5}
    whole = network(module, dataset, **options)
    (features,) = (tmp_path / "cache").rglob("features.npy")
    with features.open("r+b") as file:
        file.truncate(features.stat().st_size // 2)
    for other in (tmp_path / "cache" / "bigbatch" / "filters").iterdir():
        if other.name != "features":
            shutil.rmtree(other)
    again = network(module, dataset, **options)
    assert torch.equal(whole.score, again.score)
