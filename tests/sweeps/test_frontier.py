"""The frontier of two methods on a tiny dataset, from its trials to its figure; and its answers by hand."""

from __future__ import annotations

import pytest
from small import write_run
from sweep_parts import seeds, table, tiny_run

from bigbatch.cli import main
from bigbatch.errors import Problem
from bigbatch.sweeps import METHODS, FrontierConfig, Sweep, analyze
from bigbatch.sweeps.frontier import Method, find_lossless_batches, tuning_run


def test_every_method_has_as_many_trials():
    assert {len(method.lrs) + len(method.weight_decays) - 1 for method in METHODS.values()} == {6}
    for method in METHODS.values():
        settings = method.settings(tiny_run(), 12, method.lrs[0], method.weight_decays[0])
        scaled = tiny_run().with_settings([f"{name}={value}".replace("'", '"') for name, value in settings.items()])
        assert scaled.at_batch(24).optimizer.lr != method.lrs[0]  # by the rule of its optimizer


def test_a_frontier_is_tuned_at_the_small_batch_trained_and_drawn(tmp_path, monkeypatch, capsys):
    few = {
        "momentum": Method({"name": "momentum"}, (1e-6, 0.05), (0.0, 1e-4)),
        "adamw": Method({"name": "adamw"}, (0.01,), (0.6,)),
    }
    monkeypatch.setattr("bigbatch.sweeps.frontier.METHODS", few)
    recipe = write_run(tiny_run(micro_batch=6, global_batch=6), tmp_path)
    arguments = [
        "frontier",
        str(recipe),
        "--batches",
        "6,12,24",
        "--target",
        "test_loss=1.2",
        "--out",
        str(tmp_path / "f"),
    ]
    arguments += ["--methods", "momentum,adamw", "--tuning-epochs", "1", "--tuning-fraction", "0.5", "--jobs", "2"]
    with pytest.raises(SystemExit) as ending:
        main([*arguments, "--quiet"])
    assert ending.value.code == 0
    printed = capsys.readouterr().out
    assert "momentum: lr 0.05, weight decay" in printed  # nothing is learned with 1e-6
    assert "adamw: lr 0.01, weight decay 2.5" in printed  # 2 epochs of 12 steps: .6/(.01·24)
    assert "samples to test_loss=1.2" in printed

    trials = Sweep.open(tmp_path / "f" / "tuning")
    assert [trial.label for trial in trials.points] == [
        "momentum 1e-06 0",
        "momentum 0.05 0",
        "adamw 0.01 0.6",
        "momentum 0.05 0.0001",
    ]
    for trial in trials.points:
        assert (trial.run.dataset.name, trial.run.filter.drop, trial.run.epochs) == ("held_out", 0.5, 1)
        assert trial.global_batch == 6
    assert trials.points[2].run.optimizer.weight_decay == pytest.approx(0.6 / (0.01 * 6))  # 33 of 65 samples
    sweep = Sweep.open(tmp_path / "f" / "sweep")
    assert [point.label for point in sweep.points][:2] == ["momentum, scale_batch=1", "momentum, scale_batch=2"]
    large = sweep.points[5].run
    assert (large.dataset.name, large.filter, large.optimizer.name) == ("sweep_parts:tiny", None, "adamw")
    assert large.optimizer.lr == pytest.approx(0.02)  # 4 times the batch
    drawn = table((tmp_path / "f" / "frontier.csv").read_text())
    assert {row["series"] for row in drawn} >= {"momentum", "adamw"}
    assert sum(row["test accuracy (%)"] != "" for row in drawn) == 6
    assert (tmp_path / "f" / "frontier.png").stat().st_size > 10_000


def test_the_largest_batch_without_loss_is_judged_against_the_best_small_batch():
    def rows(variant, *means):
        return [
            row for batch, mean in zip((16, 32, 64), means, strict=True) for row in seeds(batch, mean, variant=variant)
        ]

    found = analyze(
        [*rows("best", 0.990, 0.9886, 0.9880), *rows("worse", 0.988, 0.990, 0.990), *rows("all", 0.99, 0.9886, 1)]
    )
    # .9886 is .14 points below .990, .988 is .2 below: a later recovery does not count
    assert find_lossless_batches(found) == {"best": 32, "worse": None, "all": 64}


def test_what_cannot_be_compared_is_refused():
    config = FrontierConfig(batches=(6, 12), targets=["test_loss=1"], tuning_fraction=0.5)
    with pytest.raises(Problem, match="has a budget of steps: set epochs"):
        tuning_run(tiny_run(epochs=None, steps=3), config)
    with pytest.raises(Problem, match="needs a run without a filter"):
        tuning_run(tiny_run(filter="random"), config)
