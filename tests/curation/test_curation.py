"""Rounds, comparison and tuning on digits, with trainings that take a second."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import filter_parts
import numpy as np
import pytest
import torch

from bigbatch import datasets, filters, parts
from bigbatch.cli import main
from bigbatch.curation import (
    ComparisonRequest,
    FilterRequest,
    TuningRequest,
    compare_results,
    comparison,
    filter_dataset,
    tune_filter,
)
from bigbatch.errors import Problem
from bigbatch.filters import rebuild
from bigbatch.filters.pipeline.results import SampleCounts
from bigbatch.run import Run
from bigbatch.training.loop import train

FAST = ["reducer=none", "drop=0.05"]


def small_run(**fields):
    about = {"name": "small", "dataset": "digits", "model": "mlp", "global_batch": 128, "micro_batch": 128, "epochs": 2}
    return Run(**(about | {"optimizer": {"name": "momentum", "lr": 0.1}} | fields))


@pytest.fixture
def recipe(tmp_path):
    """A run.json, which is as good as a recipe's name."""
    path = tmp_path / "small.json"
    path.write_text(small_run().to_json())
    return str(path)


def test_a_recipe_is_trained_first_and_each_round_filters_what_is_left(tmp_path, recipe):
    out = tmp_path / "kept.npz"
    manifest = filter_dataset(
        FilterRequest(
            "digits", out=out, network=recipe, settings=FAST, rounds=3, runs_dir=tmp_path / "runs", quiet=True
        )
    )
    results = [filters.load(path) for path in (tmp_path / "kept.round-1.npz", tmp_path / "kept.round-2.npz", out)]
    for earlier, later in pairwise(results):
        assert not later.mask[~earlier.mask].any()
        assert later.mask.sum() < earlier.mask.sum()
    assert [entry["round"] for entry in manifest.lineage] == [1, 2]
    assert [entry["kept"] for entry in manifest.lineage] == [int(result.mask.sum()) for result in results[:2]]
    hashes = {result.manifest.info["network"]["hash"] for result in results}
    assert len(hashes) == 3  # a new network for each round
    for result in results[1:]:  # which learned from what the round before had left
        run = json.loads((tmp_path / result.manifest.filter["network"] / "run.json").read_text())["run"]
        assert run["filter"]["path"] == result.manifest.filter["after"]
    again = rebuild(out)
    assert torch.equal(again.mask, results[-1].mask)
    assert [entry["mask_hash"] for entry in manifest.lineage] == [result.manifest.mask_hash for result in results[:2]]
    first = results[0].mask.nonzero().squeeze(1)[0]
    filters.override(results[0], [int(first)], keep=False, reason="another round 1")
    with pytest.raises(Problem, match=r"round 1 of .*kept\.npz, which is .*kept\.round-1\.npz, has another mask now"):
        rebuild(out)


def test_rounds_without_a_run_are_refused(tmp_path):
    with pytest.raises(Problem, match=r"--rounds 2 trains the network again, .*folder of a run or a recipe"):
        filter_dataset(
            FilterRequest(
                "digits", out=tmp_path / "k.npz", network="filter_parts:Net", settings=FAST, rounds=2, quiet=True
            )
        )
    with pytest.raises(Problem, match="--rounds must be at least 1, got 0"):
        filter_dataset(
            FilterRequest("digits", out=tmp_path / "k.npz", network="filter_parts:Net", rounds=0, quiet=True)
        )
    assert list(tmp_path.iterdir()) == []


def test_a_run_brings_its_datasets_options_and_settings_win(tmp_path):
    run = small_run(dataset={"name": "filter_parts:flipped", "seed": 3})
    train(run, runs_dir=tmp_path)
    network = str(tmp_path / run.folder_name)
    options = {"network": network, "settings": FAST, "quiet": True}
    manifest = filter_dataset(FilterRequest("filter_parts:flipped", out=tmp_path / "a.npz", **options))
    assert manifest.dataset.hash == filter_parts.flipped(seed=3).hash
    options["settings"] = [*FAST, "dataset.seed=4"]
    manifest = filter_dataset(FilterRequest("filter_parts:flipped", out=tmp_path / "b.npz", **options))
    assert manifest.dataset.hash == filter_parts.flipped(seed=4).hash


def test_jaccard_by_hand():
    a, b = torch.tensor([True, True, False, False]), torch.tensor([False, True, True, False])
    assert filters.jaccard(a, b) == 1 / 3
    assert filters.jaccard(a, a) == 1
    assert filters.jaccard(a & False, a & False) == 1


def test_filters_of_one_dataset_are_compared_by_size_overlap_class_and_training(tmp_path, recipe, capsys, monkeypatch):
    common = {"settings": FAST, "quiet": True}
    filter_dataset(FilterRequest("digits", out=tmp_path / "net.npz", network="filter_parts:Net", **common))
    like = [f"like={tmp_path / 'net.npz'}"]
    for name in ("random", "full"):
        settings = like if name == "random" else []
        filter_dataset(
            FilterRequest("digits", out=tmp_path / f"{name}.npz", filter_name=name, settings=settings, quiet=True)
        )
    monkeypatch.chdir(tmp_path)
    paths = [tmp_path / f"{name}.npz" for name in ("net", "random", "full")]
    rows = compare_results(
        ComparisonRequest(paths, recipe=recipe, settings=["epochs=1"], seeds=2, runs_dir=tmp_path / "runs")
    )
    net, control, full = rows
    assert net.counts.by_class == control.counts.by_class
    assert net.jaccard_dropped["random"] < 0.2
    assert net.jaccard_dropped["net"] == full.jaccard_dropped["full"] == 1
    assert full.jaccard_kept["net"] == pytest.approx(net.counts.kept / 1437)
    assert all(len(row.accuracies(("128", "epochs"))) == 2 for row in rows)
    steps = {row.name: row.trainings[0].steps for row in rows}
    assert (steps["net"], steps["full"]) == (-(-net.counts.kept // 128), 12)
    line = ["filter", "compare", *map(str, paths), "--recipe", recipe, "--set", "epochs=1", "--seeds", "2", "--quiet"]
    with pytest.raises(SystemExit, match="0"):
        main([*line, "--out", "compared"])
    printed = capsys.readouterr().out
    assert "(n=2)" in printed
    assert "dropped by both / by either" in printed
    assert {path.name for path in (tmp_path / "compared").iterdir()} == {"compare.csv", "sizes.csv", "index.html"}
    with pytest.raises(Problem, match="needs two results or more, got 1"):
        compare_results(ComparisonRequest(paths[:1]))
    with pytest.raises(Problem, match=r"full\.npz is given twice: name each result once"):
        compare_results(ComparisonRequest([*paths, paths[2]], recipe=recipe))


def test_filters_of_unlike_datasets_are_not_compared(tmp_path):
    filter_dataset(FilterRequest("digits", out=tmp_path / "a.npz", filter_name="random", quiet=True))
    filter_dataset(FilterRequest("filter_parts:flipped", out=tmp_path / "b.npz", filter_name="random", quiet=True))
    with pytest.raises(Problem, match="are of different datasets"):
        compare_results(ComparisonRequest([tmp_path / "a.npz", tmp_path / "b.npz"]))


def test_batches_budgets_and_random_draws_are_a_grid_with_differences_of_the_same_seeds(tmp_path, recipe):
    options = {"filter_name": "random", "quiet": True}
    for name, settings in (("a", ["drop=0.3"]), ("b", ["drop=0.5", "seed=1"])):
        filter_dataset(FilterRequest("digits", out=tmp_path / f"{name}.npz", settings=settings, **options))
    request = ComparisonRequest(
        [tmp_path / "a.npz", tmp_path / "b.npz"],
        recipe=recipe,
        settings=["epochs=1"],
        seeds=2,
        global_batches=[128, 512],
        budgets=["epochs", "steps"],
        random_draws=1,
        equal_sizes=True,
        out=tmp_path / "out",
        runs_dir=tmp_path / "runs",
        quiet=True,
    )
    a, b = compare_results(request)
    assert a.counts.by_class == b.counts.by_class
    assert a.counts.dropped == int((~filters.load(tmp_path / "a.npz").mask).sum())
    assert len(a.trainings) == 2 * 2 * 2 * 2
    assert {one.steps for one in a.trainings if one.budget == "steps"} == {12, 3}  # of all 1,437 samples
    assert {one.steps for one in a.trainings if one.budget == "epochs"} == {8, 2}  # of 1,006
    columns, lines = comparison.summarise_trainings([a, b])
    assert columns[4:6] == ["minus a", "minus random"]
    assert len(lines) == 8
    setting = ("128", "epochs")
    first, second = a.accuracies(setting), b.accuracies(setting)
    mean = 50 * sum(second[seed] - first[seed] for seed in (0, 1))
    (line,) = (line for line in lines if line[:3] == ["b", *setting])
    assert line[4].startswith(f"{mean:+.2f} ± ")
    with (tmp_path / "out/compare.csv").open() as file:
        assert len(file.readlines()) == 1 + 32


def test_differences_are_paired_and_have_intervals():
    def row(name, accuracies):
        trainings = [comparison.Training(0, "64", "epochs", seed, 5, value) for seed, value in enumerate(accuracies)]
        return comparison.ComparisonRow(name, SampleCounts(1, 0, {}), {}, {}, trainings)

    # differences of 1, 2 and 3 points: mean 2, s = 1, t(.975, 2) = 4.3027, half = 4.3027 / sqrt(3) = 2.48
    rows = [row("a", [0.90, 0.80, 0.70, 0.5]), row("b", [0.91, 0.82, 0.73, None])]
    _, lines = comparison.summarise_trainings(rows)
    assert lines[1][3:] == ["82.00 ± 22.36 (n=3)", "+2.00 ± 2.48 (n=3)", "-", "5", "1"]


def test_tuning_finds_options_without_the_test_set(tmp_path, recipe, monkeypatch):
    pytest.importorskip("optuna")
    from bigbatch.curation import tuning
    from bigbatch.datasets.reading.images import InMemoryImages

    monkeypatch.setattr(tuning, "is_installed", lambda name: False)  # umap and pacmap take long to compile
    fetch = InMemoryImages.fetch

    def guarded(self, indices, **options):
        assert len(self) == 1437, "the test set was looked at"
        return fetch(self, indices, **options)

    monkeypatch.setattr(InMemoryImages, "fetch", guarded)
    found = tune_filter(
        TuningRequest(
            "digits",
            network="filter_parts:Net",
            recipe=recipe,
            global_batch=512,
            out=tmp_path / "tuned.json",
            trials=3,
            seeds=1,
            settings=["iterations=20"],
            runs_dir=tmp_path / "runs",
            quiet=True,
        )
    )
    assert json.loads((tmp_path / "tuned.json").read_text()) == found
    assert len(found["trials"]) == 3
    assert found["best"]["accuracy"] == max(row["accuracy"] for row in found["trials"])
    assert found["global_batch"] == 512
    samples = 1437 - sum(round(0.2 * n) for n in torch.bincount(filter_parts.digits().train.labels).tolist())
    for row in found["trials"]:
        assert ("perplexity" in row) == (row["reducer"] == "tsne")  # without a map it would be noise to learn from
        assert (1 - row["drop"]) * samples - 1 <= row["kept"] <= samples
    config = parts.configure(
        "filters",
        {"name": "network", "network": "x"} | {k: v for k, v in found["best"].items() if k not in ("accuracy", "kept")},
    )
    assert config.name == "network"
    monkeypatch.undo()
    request = FilterRequest("digits", out=tmp_path / "k.npz", tuned=tmp_path / "tuned.json", quiet=True)
    used = filter_dataset(request).filter
    assert {name: used[name] for name in ("reducer", "min_samples", "drop")} == {
        name: found["best"][name] for name in ("reducer", "min_samples", "drop")
    }
    assert used["network"] == "filter_parts:Net"
    (tmp_path / "other.json").write_text('{"best": 1}')
    with pytest.raises(Problem, match=r"other\.json is not what --tune writes .*: give a tuned\.json"):
        filter_dataset(replace(request, tuned=tmp_path / "other.json"))


def test_tuning_on_ready_features_takes_those_that_are_not_held_out(tmp_path):
    from bigbatch.curation.tuning import _restrict_features_to_split

    features = np.random.default_rng(0).normal(size=(1437, 5)).astype(np.float32)
    np.save(tmp_path / "features.npy", features)
    config = parts.configure("filters", {"name": "network", "network": str(tmp_path / "features.npy")})
    split = datasets.load(
        parts.configure("datasets", {"name": "held_out", "of": "digits", "fraction": 0.25, "seed": 1})
    )
    found = _restrict_features_to_split(config, split)
    np.testing.assert_array_equal(np.load(found.network), features[split.train.chosen])
    np.save(tmp_path / "features.npy", features[:-1])
    with pytest.raises(Problem, match="have 1436 rows but the dataset has 1437 samples"):
        _restrict_features_to_split(config, split)
    module = parts.configure("filters", {"name": "network", "network": "filter_parts:Net"})
    assert _restrict_features_to_split(module, split) is module


def test_a_diverged_seed_is_said_to_be_and_stays_a_row(tmp_path, recipe, capsys):
    from bigbatch.output.progress import show_progress

    filter_dataset(FilterRequest("digits", out=tmp_path / "full.npz", filter_name="full", quiet=True))
    run = small_run(epochs=1, optimizer={"name": "momentum", "lr": 1e30})
    full = tmp_path / "full.npz"
    request = ComparisonRequest([full, tmp_path / "other.npz"], seeds=2, runs_dir=tmp_path / "runs")
    with show_progress(True):
        trainings = comparison._train_on_result("full", full, run, request)
    assert [(one.seed, one.accuracy) for one in trainings] == [(0, None), (1, None)]
    said = capsys.readouterr().err
    assert "full, batch 128, equal epochs, seed 1: diverged" in said
    assert "%" not in said


# -- the command line


def bigbatch(*arguments, **environment):
    """In a process of its own: exit code, what it printed, and what it said on the way."""
    command = [sys.executable, "-m", "bigbatch", "filter", *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=250)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--out", "kept.json"], r"--out kept.json must end in .npz: use --out kept.npz"),
        (["--out", "."], r"--out . is a folder: name a file in it, like --out kept.npz"),
        (["--out", "file/kept.npz"], r"--out file: .*file is a file, name a new or an existing folder"),
        (["--by", "network"], "filter 'network' uses a network's features: give --network with a recipe"),
        (["--ranks", "0"], "--ranks must be at least 1, got 0: use 1 or more"),
        (["--out", "file/kept.npz", "--ranks", "2"], "--out file: .*file is a file"),
        (["--tune", "--recipe", "digits", "--global-batch", "64", "--by", "random"], "leave out --by, --rounds and"),
        (["--tune", "--recipe", "digits", "--global-batch", "64", "--rounds", "2"], "leave out --by, --rounds and"),
        (["--tune", "--recipe", "digits", "--global-batch", "64", "--out", "a.npz"], "use --out a.json"),
        (["--tune"], "--tune needs --network, --recipe and --global-batch"),
        (["--recipe", "digits"], "are for --tune"),
        (["--set", "reducer=none", "--set", "min_samples=900"], "every class has fewer than min_samples 900 samples"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(tmp_path, monkeypatch, capsys, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no folder")
    network = [] if arguments == ["--by", "network"] else ["--network", "filter_parts:Net"]
    with pytest.raises(SystemExit) as ending:
        main(["filter", "digits", *network, *arguments])
    assert ending.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert re.search(sentence, said[-1])
    assert said[-1].startswith("bigbatch: ")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_two_ranks_from_the_command_line_write_what_one_process_writes_and_say_problems_once(tmp_path):
    environment = {"PYTHONPATH": os.environ["PYTHONPATH"]}
    options = ["digits", "--network", "filter_parts:Net", "--set", "reducer=none", "--set", "drop=0.05"]
    for ranks in (1, 2):
        cache = {"XDG_CACHE_HOME": str(tmp_path / f"cache-{ranks}")}
        arguments = [*options, "--out", tmp_path / f"{ranks}.npz", "--ranks", ranks]
        code, printed, said = bigbatch(*arguments, **environment, **cache)
        assert code == 0, said
        assert printed.count("samples kept") == 1
    one, two = (filters.load(tmp_path / f"{ranks}.npz") for ranks in (1, 2))
    assert torch.equal(one.mask, two.mask)
    assert torch.equal(one.score, two.score)
    code, printed, said = bigbatch("rebuild", tmp_path / "1.npz", **environment)
    assert (code, said) == (0, "")
    assert printed.strip().endswith(f"rebuilt bit for bit, {int(one.mask.sum()):,} of 1,437 samples kept")
    assert set(one.arrays) == {"map", "points", "cluster", "prediction", "confidence", "loss", "label", "filter_mask"}
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, two.arrays[name])
    features = [np.load(next(tmp_path.glob(f"cache-{ranks}/**/features.npy"))) for ranks in (1, 2)]
    np.testing.assert_array_equal(*features)
    bad = [*options, "--set", "min_samples=900", "--out", tmp_path / "bad.npz", "--ranks", "2"]
    code, _, said = bigbatch(*bad, **environment, **cache)
    assert code == 2
    assert said.count("fewer than min_samples 900") == 1
    assert "Traceback" not in said
    assert not (tmp_path / "bad.npz").exists()
