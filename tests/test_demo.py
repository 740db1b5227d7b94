from __future__ import annotations

import csv
import io
import os
import re
import signal
import subprocess
import sys
from base64 import b64decode
from math import sqrt
from pathlib import Path

import pytest
from small import small_run

from bigbatch import schedules
from bigbatch.artifacts.folder import Folder
from bigbatch.commands import demo as demo_command
from bigbatch.demo import DemoOptions, list_choices, run, run_demo
from bigbatch.demo.page import build_page
from bigbatch.demo.run import BASELINE, LEGW, LEGW_LARS, LINEAR, UNSCALED, choose_value
from bigbatch.errors import Problem, Stopped
from bigbatch.output.page import Page
from bigbatch.recipes import legw_digits
from bigbatch.sweeps import RunResult, Sweep, SweepConfig, group_by_setting

POINTS = SweepConfig.build(legw_digits.run(), variants=run.build_variants()).points()
RUNS = {point.variant: point.run for point in POINTS}
LRS = {point.variant: run.VariantResult(point.run, None, ()).peak_lr for point in POINTS}


def results_by_hand(variant, accuracies, **settings):
    """One result per seed; None is a training that diverged."""
    return [
        RunResult(
            variant=variant,
            settings=settings,
            seed=seed,
            global_batch=512,
            lr=0.05,
            status="diverged" if accuracy is None else "done",
            metric="test_accuracy",
            value=accuracy,
            folder=Path(),
            hash_without_batch="",
            summary={"steps": 60},
        )
        for seed, accuracy in enumerate(accuracies)
    ]


def compare_by_hand(**accuracies):
    names = {"baseline": BASELINE, "unscaled": UNSCALED, "linear": LINEAR, "legw": LEGW, "lars": LEGW_LARS}
    results = [result for name, values in accuracies.items() for result in results_by_hand(names[name], values)]
    return run.compare_variants(POINTS, results)


def test_every_lr_follows_from_the_baseline():
    assert [(point.global_batch, point.run.epochs) for point in POINTS] == [(16, 30)] + 4 * [(512, 30)]
    assert LRS[BASELINE] == LRS[UNSCALED] == pytest.approx(0.05)
    assert LRS[LINEAR] == pytest.approx(32 * 0.05)
    assert LRS[LEGW] == pytest.approx(sqrt(32) * 0.05)


def test_the_unscaled_training_differs_in_the_batch_alone():
    small, large = (schedules.plan(RUNS[name], 30, 500) for name in (BASELINE, UNSCALED))
    assert [point.lr for point in small] == pytest.approx([point.lr for point in large])
    fields = [RUNS[name].model_dump(exclude={"global_batch", "schedule"}) for name in (BASELINE, UNSCALED)]
    assert fields[0] == fields[1]


def test_lars_trains_as_its_recipe_at_the_large_batch():
    assert RUNS[LEGW_LARS] == legw_digits.lars().with_settings(["global_batch=512"])
    assert RUNS[LEGW] == legw_digits.run().with_settings(["global_batch=512"])


def test_choices_are_made_at_the_small_batch_on_samples_held_out_of_the_training_set():
    choices = list_choices()
    for choice in choices:
        assert choice.run.dataset.name == "held_out"
        assert choice.run.global_batch.global_batch == legw_digits.BASELINE_BATCH
        points = SweepConfig.build(choice.run, grids={choice.field: choice.values}).points()
        assert choice.run.hash in [point.hash for point in points]  # the recipe's own value is one of them
    recipe = (legw_digits.INIT, legw_digits.LR, legw_digits.WARMUP_EPOCHS, legw_digits.TRUST_COEFFICIENT)
    for choice, value in zip(choices, recipe, strict=True):
        assert value in choice.values


@pytest.mark.parametrize(
    ("accuracies", "chosen"),
    [
        ({0.1: [0.7, 0.9], 0.2: [0.8, 1.0], 0.3: [0.6, 0.8]}, 0.2),
        ({0.3: [0.8, 1.0], 0.1: [0.8, 1.0], 0.2: [0.7, 0.9]}, 0.3),  # of equal means the larger value
        ({0.1: [0.5, 0.7], 0.2: [1.0, None]}, 0.1),  # a diverged run counts as 0
        ({0.1: [None, None], 0.2: [None, None]}, 0.2),
        ({"tensorflow": [0.7, 0.7], "torch": [0.6, 0.6]}, "tensorflow"),
    ],
)
def test_the_highest_mean_is_chosen_and_of_equal_ones_the_larger_value(accuracies, chosen):
    results = [result for value, found in accuracies.items() for result in results_by_hand("", found, field=value)]
    assert choose_value(group_by_setting(results)) == chosen


def test_what_is_won_back_is_a_fraction_of_what_was_lost():
    comparison = compare_by_hand(
        baseline=[0.9, 1.0], unscaled=[0.4, 0.6], legw=[0.90, 0.92], lars=[0.95, 0.95], linear=[0.1, 0.1]
    )
    # .95 falls to .50: .45 lost; .91 is .41 above .50
    # seed 0: .5 of .5 lost won back; seed 1: .32 of .4
    assert run.fractions_won_back(comparison, LEGW) == pytest.approx([0.41 / 0.45, 1.0, 0.8])
    gain = run.describe_gain(comparison, LEGW)
    assert gain == "LEGW wins back 91 % of the accuracy that was lost (by seed: 100, 80 %)."
    assert "wins back 100 %" in run.describe_gain(comparison, LEGW_LARS)
    assert "wins nothing back: it loses 89 % more" in run.describe_gain(comparison, LINEAR)


def test_a_diverged_training_is_counted_beside_the_mean():
    lost = [None, None]
    comparison = compare_by_hand(baseline=[0.9, 0.9], unscaled=[0.5, None], linear=lost, legw=lost, lars=lost)
    assert comparison[UNSCALED].describe() == "50.0 % (n=1, 1 diverged)"
    assert comparison[LEGW].describe() == "- (n=0, 2 diverged)"
    assert run.fractions_won_back(comparison, LEGW)[0] is None
    assert "nothing to win back" in run.describe_gain(comparison, LEGW)
    assert "90.0 % ± 0.0 (n=2) becomes 50.0 % (n=1, 1 diverged)" in run.list_conclusions(comparison)[0]


def test_a_failed_run_ends_the_demo_with_its_sentence(tmp_path):
    optimizer = {"name": "sweep_parts:ToldSGD", "lr": 0.1, "told": str(tmp_path / "nowhere" / "told")}
    sweep = Sweep.create(small_run(optimizer=optimizer), tmp_path / "sweep", variants={"baseline": {}})
    with pytest.raises(Problem, match=r"baseline, seed 0: .*No such file or directory"):
        run.run_sweep(sweep, quiet=True)


TRAINS_FOR_EVER = """
import os, sys
from bigbatch.cli import main
from bigbatch.demo import run
from bigbatch.recipes import legw_digits
from bigbatch.run import Run

os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # one run at a time
run.build_variants = lambda: {"baseline": {}}
legw_digits.run = lambda: Run.from_json(sys.argv[1])
main(["demo"])
"""


@pytest.mark.parametrize(
    "stop",
    [
        lambda pid: os.killpg(pid, signal.SIGINT),  # as a terminal does on Ctrl-C
        lambda pid: os.kill(pid, signal.SIGTERM),
    ],
    ids=["ctrl-c", "sigterm"],
)
def test_a_stopped_demo_leaves_no_process_and_keeps_what_is_trained(tmp_path, stop):
    """The first run of three is being trained, and would never end."""
    script, told = tmp_path / "script.py", tmp_path / "told"
    script.write_text(TRAINS_FOR_EVER)
    os.mkfifo(told)
    optimizer = {"name": "sweep_parts:ToldSGD", "lr": 0.1, "told": str(told)}
    endless = small_run(optimizer=optimizer, epochs=1_000_000)
    owner = subprocess.Popen(
        [sys.executable, script, endless.to_json()],
        cwd=tmp_path,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert told.read_text()  # it trains
    stop(owner.pid)
    text, _ = owner.communicate()  # to the end, which comes only when all processes that share it are gone
    assert owner.returncode == 75
    assert "the same command resumes the demo" in text
    assert "Traceback" not in text
    first, second, third = Sweep.open(tmp_path / "runs" / "demo").run_results()
    assert (first.status, second.status, third.status) == ("stopped", "missing", "missing")
    assert any(Folder(first.folder).checkpoints.glob("step-*"))


def test_the_whole_demo_in_short(tmp_path, capsys, monkeypatch):
    options = DemoOptions(tmp_path / "runs", seeds=1, epochs=7, advice_seconds=1.0)
    report = run_demo(options)
    demo_command.print_report(report)
    text = capsys.readouterr().out
    page = build_page(report).html()
    runs = list((tmp_path / "runs" / "demo" / "runs").iterdir())
    assert len(runs) == 5
    for name, variant in report.comparison.items():
        accuracy = Folder(variant.runs[0].folder).summary()["test_accuracy"]
        assert re.search(rf"{re.escape(name)}\W.*{100 * accuracy:.1f} % \(n=1\)", text), name
        assert f"{100 * accuracy:.1f} % (n=1)" in page
    assert "advise: use a global batch of" in text
    assert 50 < int(re.search(r"filter drops (\d+) of 1,437 digits", text).group(1)) <= 72  # 5 %, or a tie less
    assert page.count("<svg") == 3
    assert page.count("data:image/png") == 20
    data = re.search(r'download="test-accuracy.csv" href="data:text/csv;base64,([^"]+)"', page).group(1)
    last = {row["series"]: row for row in csv.DictReader(io.StringIO(b64decode(data).decode()))}
    assert {name: float(last[name]["Test accuracy (%)"]) for name in report.comparison} == {
        name: pytest.approx(100 * variant.group.mean) for name, variant in report.comparison.items()
    }
    written = [(path / "summary.json").stat().st_mtime_ns for path in runs]
    monkeypatch.setattr(run, "advise_run", _interrupt)
    with pytest.raises(Stopped, match="the same command resumes the demo"):
        run_demo(options)
    assert [(path / "summary.json").stat().st_mtime_ns for path in runs] == written  # not trained again


def _interrupt(*_, **__):
    raise KeyboardInterrupt


def test_the_command_ends_in_the_address_of_its_page(tmp_path, capsys, monkeypatch):
    class Report:
        seconds = 29.6

    monkeypatch.setattr("bigbatch.demo.run_demo", lambda options: Report)
    monkeypatch.setattr(demo_command, "print_report", lambda report: None)
    monkeypatch.setattr("bigbatch.demo.page.build_page", lambda report: Page("demo"))
    assert demo_command.command(runs_dir=tmp_path, out=tmp_path / "demo.html", quiet=True) == 0
    assert capsys.readouterr().out == f"30 s. {(tmp_path / 'demo.html').as_uri()}\n"
    assert "<title>demo</title>" in (tmp_path / "demo.html").read_text()
