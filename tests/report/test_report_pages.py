from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from report_folders import downloads, make, step_row, text_of
from small import small_run

from bigbatch.errors import Problem
from bigbatch.recipes import load_run
from bigbatch.report import compare_runs, find_run_folders, report
from bigbatch.report.charts import downsample
from bigbatch.report.gaps import describe_gap, read_losses
from bigbatch.report.records import RunGroup, read_run
from bigbatch.sweeps import SearchConfig, Sweep, parse_ranges
from bigbatch.sweeps.search import evaluate_on_held_out


def numbers(rows, *columns):
    return [tuple(float(row[column]) if row[column] else None for column in columns) for row in rows]


def test_three_seeds_are_a_mean_with_its_interval_and_every_chart_offers_what_it_draws(tmp_path):
    for seed, last in enumerate((0.90, 0.92, 0.94)):
        make(tmp_path / "runs" / f"small-{seed}", small_run(seed=seed), [0.5, last])
    page = report([tmp_path / "runs"], tmp_path / "report.html")
    # t(.975, 2 degrees) = 4.3027; the standard deviation of .90 .92 .94 is .02: 4.3027 · .02 / √3 = .0497
    assert "92.00 % ± 4.97 (n=3)" in text_of(page)
    found = downloads(page)
    accuracy = found["test-accuracy.csv"]
    assert numbers(accuracy, "epoch", "Test accuracy (%)", "n") == [(1, 50, 3), (2, pytest.approx(92), 3)]
    assert numbers(accuracy, "low", "high")[1] == (pytest.approx(87.03, abs=0.01), pytest.approx(96.97, abs=0.01))
    loss = numbers(found["training-loss.csv"], "epoch", "Training loss")
    assert loss == [(step / 4, pytest.approx(1 / step)) for step in range(1, 9)]
    assert {"learning-rate.csv", "samples-in-the-step.csv", "test-loss.csv", "runs.csv"} <= found.keys()
    assert page.read_text().count("<svg") == len(found) - 1  # all but the table of runs
    assert [(row["seed"], row["test_accuracy"]) for row in found["runs.csv"]] == [
        ("0", "0.9"),
        ("1", "0.92"),
        ("2", "0.94"),
    ]
    assert {row["state"] for row in found["runs.csv"]} == {"done"}


def test_a_run_that_is_named_twice_or_copied_counts_once(tmp_path):
    for folder, seed, accuracy in (("runs/a", 0, 0.90), ("runs/b", 1, 0.92), ("copy", 0, 0.90)):
        make(tmp_path / folder, small_run(seed=seed), [accuracy])
    named = [tmp_path / "runs", tmp_path / "runs" / "a", tmp_path / "copy", tmp_path / "runs" / ".." / "runs" / "b"]
    page = report(named, tmp_path / "report.html")
    assert len(downloads(page)["runs.csv"]) == 3
    # t(.975, 1) = 12.706: 12.706 · .01414 / √2 = .1271, and nothing is above 100 %
    assert "91.00 %, 78.29 to 100.00 (n=2)" in text_of(page)


def test_settings_are_lines_named_by_what_differs(tmp_path):
    for batch in (256, 512):
        make(tmp_path / f"small-{batch}", small_run(global_batch=batch), [0.8, 0.9])
    found = downloads(report([tmp_path / "small-256", tmp_path / "small-512"], tmp_path / "report.html"))
    assert {row["series"] for row in found["test-accuracy.csv"]} == {"global_batch=256", "global_batch=512"}
    assert all(row["low"] == "" for row in found["test-accuracy.csv"])  # one seed has no interval


@pytest.mark.parametrize(
    ("accuracy", "train_loss", "test_loss", "gap"),
    [
        (0.85, 0.5, 0.7, "optimisation (+0.4)"),  # of +.4 in test loss, all is in the training loss
        (0.85, 0.11, 0.7, "generalisation (+0.39)"),  # .01 of .4 is in the training loss
        (0.85, 0.3, 0.7, "optimisation (+0.2) and generalisation (+0.2)"),
        (0.92, 0.5, 0.7, "none: the result is not worse"),
        (0.85, 0.1, 0.28, "cannot tell: the result is worse, and no loss is higher"),
    ],
)
def test_the_gap_of_a_large_batch_is_named(tmp_path, accuracy, train_loss, test_loss, gap):
    for seed, small_accuracy in enumerate((0.91, 0.92, 0.93)):
        run = small_run(global_batch=16, seed=seed)
        make(tmp_path / f"small-{seed}", run, [small_accuracy], train_loss=0.1, test_loss=0.3)
    make(tmp_path / "large", small_run(global_batch=512), [accuracy], train_loss=train_loss, test_loss=test_loss)
    large, *small = map(read_run, sorted(tmp_path.iterdir()))
    groups = RunGroup("small", tuple(small)), RunGroup("large", (large,))
    assert describe_gap(*map(read_losses, groups)) == gap


def test_small_and_large_batches_are_side_by_side(tmp_path):
    make(tmp_path / "runs/small", small_run(global_batch=16), [0.9], train_loss=0.1, test_loss=0.3)
    make(tmp_path / "runs/large", small_run(global_batch=512), [0.8], train_loss=0.5, test_loss=0.7)
    make(tmp_path / "runs/diverged", small_run(global_batch=901), [0.1], status="diverged")
    text = text_of(report([tmp_path / "runs"], tmp_path / "page.html"))
    section = text[text.index("Small batch against large") : text.index("Curves")]
    assert "optimisation (+0.4)" in section
    assert "901" not in section


def test_probes_are_drawn_and_layers_too_where_there_is_one_setting(tmp_path):
    folder = make(tmp_path / "small-1", small_run(), [0.9])
    with (folder / "metrics.jsonl").open("a") as file:
        for step in (5, 6):
            layers = {"head": {"ratio": 2.0 * step}, "body": {"ratio": 3.0 * step}}
            row = step_row(step, 0.1, probe={"value": 1.5 * step, "samples": 32}, ratio=layers)
            file.write(json.dumps(row) + "\n")
    found = downloads(report([folder], tmp_path / "report.html"))
    assert numbers(found["probe-value.csv"], "epoch", "probe/value") == [(1.25, 7.5), (1.5, 9.0)]
    assert "probe-samples.csv" not in found  # it never moves: an option, not a measurement
    by_layer = {(row["series"], float(row["ratio: ratio"])) for row in found["ratio--ratio.csv"]}
    assert by_layer == {("head", 10.0), ("head", 12.0), ("body", 15.0), ("body", 18.0)}


def test_long_lines_are_thinned_by_means_or_by_leaving_out():
    line = [(float(step), float(step)) for step in range(1, 901)]
    means, every = downsample(line)
    assert (every, len(means), means[0], means[-1]) == (3, 300, (3.0, 2.0), (900.0, 899.0))
    left, _ = downsample(line, keep_values=True)
    assert left[:2] == [(1.0, 1.0), (4.0, 4.0)]
    assert downsample(line[:300])[0] == line[:300]


def cut_a_line(folder: Path) -> None:
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text().replace('{"epoch": 0.5', '{"epo', 1))


def edit(folder: Path, **changes: object) -> None:
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(about | changes))


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE = {
    "killed": (lambda folder: (folder / "status").write_text("running\n"), "continues it"),
    "stopped": (lambda folder: (folder / "status").write_text("stopped\n"), "continues it"),
    "failed": (lambda folder: (folder / "status").write_text("failed\n"), "continues it"),
    "not begun": (lambda folder: (folder / "status").unlink(), "continues it"),
    "no run.json": (lambda folder: (folder / "run.json").unlink(), "it has no run.json"),
    "cut run.json": (lambda folder: (folder / "run.json").write_text('{"run": {"da'), "run.json cannot be read"),
    "no object": (lambda folder: (folder / "run.json").write_text("[1]"), "run.json is not a JSON object"),
    "changed": (
        lambda folder: (folder / "run.json").write_text((folder / "run.json").read_text().replace("256", "128")),
        "run.json was changed",
    ),
    "no text": (lambda folder: (folder / "metrics.jsonl").write_bytes(b"\xff\xfe{}\n{}\n"), "is not a row"),
    "broken line": (cut_a_line, "line 2 of"),
    "no step": (
        lambda folder: (folder / "metrics.jsonl").write_text('{"a": 1}\n5\n'),
        "it is not an object with a step",
    ),
    "no rows": (lambda folder: (folder / "metrics.jsonl").unlink(), ""),
    "no summary": (lambda folder: (folder / "summary.json").unlink(), "has no summary.json"),
    "no command": (
        lambda folder: edit(folder, command=None),
        "",
    ),
    "no fields": (lambda folder: edit(folder, run=[1]), "run.json does not describe a run"),
    "dataset": (lambda folder: edit(folder, run={"dataset": "x"}), "run.json was changed"),
    "status folder": (lambda folder: to_folder(folder / "status"), "status cannot be read (Is a directory)"),
    "summary folder": (lambda folder: to_folder(folder / "summary.json"), "summary.json cannot be read"),
    "cut summary": (lambda folder: (folder / "summary.json").write_text("{"), "summary.json cannot be read"),
}


@pytest.fixture(scope="module")
def page_of_hurt_runs(tmp_path_factory):
    """One page about a whole run and one in each of these states."""
    folder = tmp_path_factory.mktemp("hurt")
    make(folder / "runs" / "whole", small_run(seed=100), [0.5, 0.9])
    for seed, (name, (hurt, _)) in enumerate(DAMAGE.items()):
        hurt(make(folder / "runs" / name, small_run(seed=seed), [0.5, 0.8]))
    return report([folder / "runs"], folder / "report.html")


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_run_in_any_state_is_a_row(page_of_hurt_runs, damage):
    rows = {row["run"]: row for row in downloads(page_of_hurt_runs)["runs.csv"]}
    assert len(rows) == len(DAMAGE) + 1
    expected = damage if damage in ("killed", "stopped", "failed", "not begun") else "damaged"
    assert rows[damage]["state"] == ("done" if damage in ("no rows", "no command") else expected)
    assert DAMAGE[damage][1] in rows[damage]["note"]


def test_only_runs_that_are_done_count(page_of_hurt_runs):
    # .9 of the whole run and .8 of those that lost their rows or their command, but not their summary
    # .8333, s = .0577, t(.975, 2) = 4.3027: ± 4.3027 · .0577 / √3 = .1434
    assert "83.33 % ± 14.34 (n=3)" in text_of(page_of_hurt_runs)


def test_a_diverged_run_keeps_its_curve_and_says_where_it_ended(tmp_path):
    folder = make(tmp_path / "small-1", small_run(), [0.5], status="diverged", diverged_at_step=5)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(step_row(5, None, diverged=True)) + "\n")
    page = report([folder], tmp_path / "report.html")
    assert "the loss was not finite at step 5" in text_of(page)
    assert len(downloads(page)["training-loss.csv"]) == 4


def test_what_a_run_is_called_cannot_become_part_of_the_page(tmp_path):
    folder = make(tmp_path / "small-1", small_run(), [0.5])
    hostile = (folder / "run.json").read_text().replace('"small"', '"<script>alert(1)</script>$\\\\foo$"')
    (folder / "run.json").write_text(hostile)
    page = report([folder], tmp_path / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_a_recipe_of_a_paper_stands_beside_the_papers_number(tmp_path):
    for batch, accuracy in ((128, 0.9865), (8192, 0.9807)):
        run = load_run("legw_mnist", [f"global_batch={batch}"])
        make(tmp_path / "runs" / f"legw-{batch}", run, [accuracy])
    text = " ".join(text_of(report([tmp_path / "runs"], tmp_path / "report.html")).split())
    assert (
        "98.80 % You et al. 2018 (LEGW), section 5.1.1 98.65 % (n=1) worse, but one seed has no interval nothing"
        in text
    )
    assert "98.07 % (n=1) worse, but one seed has no interval global_batch=8192" in text


def test_a_sweep_is_answered_with_its_critical_batch_and_its_edges(tmp_path):
    sweep = Sweep.create(small_run(), tmp_path / "sweep", grids={"global_batch": [64, 128, 256]}, seeds=3)
    accuracies = {64: (0.95, 0.96, 0.97), 128: (0.94, 0.95, 0.96), 256: (0.70, 0.71, 0.72)}
    for point in sweep.points[:-1]:  # one is missing
        made = make(sweep.folder / "runs" / point.folder_name, point.run, [accuracies[point.global_batch][point.seed]])
    (made / "summary.json").write_text("{")  # and one is damaged
    text = text_of(report([sweep.folder], tmp_path / "damaged.html"))
    assert "9 settings and seeds" in text
    (made / "summary.json").write_text(json.dumps({"test_accuracy": 0.96, "diverged_at_step": None}))
    page = report([sweep.folder], tmp_path / "report.html")
    # mean .96, s .01: the interval at 64 is .96 ± 4.3027 · .01 / √3 = .9352 to .9848; 128 is within, 256 is not
    assert "critical batch 256: 70.50 % is below 93.52 %" in text_of(page)
    assert "the best global_batch is 64, the smallest of its grid" in text_of(page)
    against = downloads(page)["test-accuracy-against-the-batch.csv"]
    assert numbers(against, "global batch", "test accuracy (%)", "n") == [
        (64, pytest.approx(96), 3),
        (128, pytest.approx(95), 3),
        (256, pytest.approx(70.5), 2),
    ]
    assert len(downloads(page)["runs.csv"]) == 8
    assert {row["series"] for row in downloads(page)["test-accuracy.csv"]} == {
        "global_batch=64",
        "global_batch=128",
        "global_batch=256",
    }


def test_the_trials_of_a_search_are_reported_and_mirrored_though_one_is_damaged(tmp_path):
    asked = SearchConfig(ranges=parse_ranges(["optimizer.lr=0.01..1:log"]), trials=3)
    sweep = Sweep.create(small_run(), tmp_path / "sweep", search=asked)
    (base,) = (evaluate_on_held_out(point, asked) for point in sweep.points)
    tried = [base.run.with_settings([f"optimizer.lr={lr}"]) for lr in (0.1, 0.2, 0.3)]
    trials = [make(sweep.folder / "runs" / run.folder_name, run, [0.9]) for run in tried]
    assert find_run_folders([sweep.folder]) == sorted(trials)
    (trials[0] / "run.json").write_text("[]")
    page = report([sweep.folder], tmp_path / "report.html")
    assert {row["run"]: row["state"] for row in downloads(page)["runs.csv"]} == {
        trials[0].name: "damaged",
        trials[1].name: "done",
        trials[2].name: "done",
    }
    assert "best of 2 trials" in text_of(page)
    assert f"{trials[0].name} is left out: " in text_of(page)
    # what a search measures is no test
    assert "held-out-accuracy.csv" in downloads(page)
    assert " held-out accuracy " in text_of(page)
    assert "Test accuracy" not in page.read_text()
    # and in the sweep's own table it is a row, too
    answers = sweep.write_results()
    assert answers.metric_label == "held-out accuracy"
    rows = list(csv.DictReader(io.StringIO((sweep.folder / "table.csv").read_text())))
    assert [(row["status"], row["global_batch"]) for row in rows] == [("done", "256")] * 2 + [("damaged", "")]
    assert "run.json is not readable JSON" in rows[-1]["problem"]


def test_a_sweep_that_has_not_begun_has_a_page(tmp_path):
    sweep = Sweep.create(small_run(), tmp_path / "sweep", grids={"global_batch": [64, 128]})
    assert "no runs yet" in text_of(report([sweep.folder], tmp_path / "report.html"))


def test_two_runs_side_by_side_with_what_differs(tmp_path):
    first = make(tmp_path / "small-a", small_run(), [0.5, 0.9])
    second = make(tmp_path / "small-b", small_run(optimizer={"name": "lars", "lr": 0.2}, seed=3), [0.6, 0.95])
    about = json.loads((second / "run.json").read_text())
    (second / "run.json").write_text(json.dumps(about | {"commit": "beef"}))
    page = compare_runs([first, second], tmp_path / "both.html")
    text = " ".join(text_of(page).split())
    differing_part = text.partition("What differs in their run.json")[2].partition("Curves")[0]
    assert "optimizer.name momentum lars optimizer.lr 0.1 0.2" in differing_part
    assert "seed 0 3" in differing_part
    assert "optimizer.trust_coefficient (missing) 0.001" in differing_part
    assert "commit c0ffee beef" in differing_part
    assert "global_batch" not in differing_part
    assert "test_accuracy 0.9 0.95 0.05" in text
    assert {row["series"] for row in downloads(page)["test-accuracy.csv"]} == {"small-a", "small-b"}
    again = make(tmp_path / "elsewhere" / "small-a", small_run(), [0.5])
    assert "the same run, started twice" in text_of(compare_runs([first, again], tmp_path / "same.html"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "nowhere is neither a run nor a sweep nor a folder of runs"),
        (["empty"], "empty is neither a run nor a sweep nor a folder of runs"),
        (["run", "--compare"], "--compare takes two runs, got 1 runs: name two folders"),
        (["run", "--track", "nothing"], "no tracker called 'nothing'"),
        (["run", "--out", "run/run.json/page.html"], "page.html could not be written"),
    ],
)
def test_wrong_input_is_one_sentence_and_writes_nothing(tmp_path, monkeypatch, capsys, arguments, sentence):
    from bigbatch.cli import main

    monkeypatch.chdir(tmp_path)
    make(tmp_path / "run", small_run(), [0.5])
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit) as ended:
        main(["report", *arguments])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_the_command_prints_the_address_of_the_page_and_fills_in_trackers(tmp_path, monkeypatch, capsys):
    from bigbatch.cli import main

    monkeypatch.chdir(tmp_path)
    make(tmp_path / "runs" / "small-1", small_run(), [0.5])
    before = (tmp_path / "runs" / "small-1" / "metrics.jsonl").read_bytes()
    with pytest.raises(SystemExit) as ended:
        main(["report", "runs", "--track", "tensorboard"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.strip() == (tmp_path / "report.html").as_uri()
    assert list((tmp_path / "runs" / "small-1" / "trackers" / "tensorboard").glob("events.*"))
    assert (tmp_path / "runs" / "small-1" / "metrics.jsonl").read_bytes() == before


def test_a_run_that_trains_right_now_is_running(tmp_path):
    from bigbatch.artifacts.folder import Folder

    folder = make(tmp_path / "small-1", small_run(), [0.5], status="running")
    with Folder(folder).lock():
        assert read_run(folder).state == "running"
    assert read_run(folder).state == "killed"


def test_a_page_that_cannot_be_drawn_says_what_is_missing(tmp_path):
    with pytest.raises(Problem, match="there is nothing to report"):
        report([], tmp_path / "report.html")
