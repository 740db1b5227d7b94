"""Answers from rows whose means, intervals and critical batches were worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweep_parts import row, seeds

from bigbatch.sweeps import RunResult, analyze, confidence_interval, format_mean, format_metric
from bigbatch.sweeps.results import format_table


def test_the_interval_is_students():
    # mean .92, s = √(2 · .02² / 2) = .02, t(.975, 2) = 4.302653: ± 4.302653 · .02 / √3 = .0496828
    mean, low, high = confidence_interval([0.90, 0.92, 0.94])
    assert (mean, low, high) == (pytest.approx(0.92), pytest.approx(0.92 - 0.0496828), pytest.approx(0.92 + 0.0496828))
    # t(.975, 1) = 12.7062: two values are hardly an interval, and the formula says so
    assert confidence_interval([1.0, 2.0]) == (
        1.5,
        pytest.approx(1.5 - 12.7062 * 0.5, abs=1e-3),
        pytest.approx(1.5 + 12.7062 * 0.5, abs=1e-3),
    )


def test_the_interval_of_a_share_ends_where_shares_end():
    # .9 and .92: .91 ± .1271; .6 and .0: .3 ± 12.7062 · .4243 / √2 = 3.81
    assert [format_mean(values, "test_accuracy") for values in ([0.9, 0.92], [0.6, 0.0], [0.5, 0.5], [0.5], [])] == [
        "91.00 %, 78.29 to 100.00",
        "30.00 %, 0.00 to 100.00",
        "50.00 % ± 0.00",
        "50.00 %",
        "-",
    ]
    assert format_mean([0.9, 0.92], "test_accuracy", digits=1) == "91.0 %, 78.3 to 100.0"
    assert format_mean([90.0, 92.0], "test_perplexity") == "91.00 ± 12.71"
    found = analyze([*seeds(16, 0.9, 0.92), *seeds(32, 0.5, 0.5)])
    assert (found.groups[0].low, found.groups[0].high) == (pytest.approx(0.91 - 0.127062), 1.0)
    assert found.notes[-1] == "intervals are t-intervals, clipped to 0-100 %"
    assert not any("clipped" in note for note in analyze(seeds(16, 0.9, 0.9)).notes)


def test_one_value_has_no_interval():
    assert confidence_interval([0.9]) == (0.9, None, None)


def test_the_critical_batch_is_the_first_below_the_baselines_interval():
    rows = [
        *seeds(512, 0.80, 0.81, 0.82),
        *seeds(16, 0.90, 0.92, 0.94),  # interval from .8703
        *seeds(64, 0.99, 0.99, 0.99),  # better is not lost
        *seeds(128, 0.88, 0.87, 0.89),
        *seeds(256, 0.87, 0.87, 0.87),  # .87 is below .8703
        *seeds(1024, 0.92, 0.92, 0.92),  # that a larger one comes back does not undo it
    ]
    (curve,) = analyze(rows).curves
    assert [group.global_batch for group in curve.groups] == [16, 64, 128, 256, 512, 1024]
    assert (curve.baseline_batch, curve.largest_good_batch, curve.critical_batch) == (16, 128, 256)
    assert curve.note == "critical batch 256: 87.00 % is below 87.03 %, the end of the interval at 16; good up to 128"


def test_another_baseline_than_the_smallest_batch():
    rows = [*seeds(16, 0.1, 0.2, 0.3), *seeds(32, 0.90, 0.92, 0.94), *seeds(64, 0.5, 0.5, 0.5)]
    (curve,) = analyze(rows, baseline_batch=32).curves
    assert (curve.baseline_batch, curve.largest_good_batch, curve.critical_batch) == (32, 32, 64)


def test_perplexity_is_lost_upwards():
    rows = [
        *seeds(20, 100.0, 102.0, 104.0, metric="test_perplexity"),  # ± 4.97
        *seeds(40, 90.0, 90.0, 90.0, metric="test_perplexity"),
        *seeds(80, 107.0, 107.0, 107.0, metric="test_perplexity"),
    ]
    found = analyze(rows)
    assert (found.curves[0].largest_good_batch, found.curves[0].critical_batch) == (40, 80)
    assert found.best.global_batch == 40
    assert format_metric(found.best.mean, found.metric) == "90.00"


def test_no_critical_batch_without_an_interval():
    (curve,) = analyze([row(16, 0.9), row(32, 0.1)]).curves
    assert (curve.largest_good_batch, curve.critical_batch) == (None, None)
    assert curve.note.startswith("no interval at the baseline batch 16 (n=1), so no critical batch")
    assert "settings with n=1 have no interval: use --seeds 3 or more" in analyze([row(16, 0.9)]).notes


def test_a_batch_that_diverges_has_left_and_is_no_part_of_the_mean():
    rows = [*seeds(16, 0.90, 0.92, 0.94), *seeds(32, 0.92, 0.92), row(32, None, 2, status="diverged")]
    (curve,) = analyze(rows).curves
    assert curve.critical_batch == 32
    assert "1 of 3 runs diverged" in curve.note
    assert (curve.groups[1].mean, curve.groups[1].n, curve.groups[1].diverged) == (pytest.approx(0.92), 2, 1)
    assert curve.groups[1].describe("test_accuracy") == "92.00 % ± 0.00 (n=2, 1 diverged)"


def test_what_is_not_there_yet_is_not_judged():
    rows = [*seeds(16, 0.90, 0.92, 0.94), row(32, None, status="missing"), *seeds(64, 0.1, 0.1, 0.1)]
    (curve,) = analyze(rows).curves
    assert (curve.largest_good_batch, curve.critical_batch) == (16, None)
    assert curve.note == "good up to 16; 32 is not finished yet"


def test_a_batch_that_is_judged_by_some_of_its_seeds_says_so():
    rows = [*seeds(16, 0.90, 0.92, 0.94), *seeds(32, 0.91, 0.92), row(32, None, 2, status="running")]
    (curve,) = analyze(rows).curves
    assert curve.note == (
        "no critical batch up to 32: no mean is worse than the interval at 16; so far: 32 has 2 of 3 seeds"
    )
    failed = [*rows, *seeds(64, 0.5, 0.5), row(64, None, 2, status="failed")]
    assert analyze(failed).curves[0].note.endswith("so far: 32 has 2 of 3 seeds, 64 has 2 of 3 seeds")


def test_two_seeds_that_prefer_one_batch_are_no_interval():
    (two,) = analyze([*seeds(16, 0.9, 0.9), *seeds(32, 0.8, 0.8), *seeds(8, 0.8, 0.8)]).preferred
    assert (two.batch, two.low_batch, two.high_batch, two.n) == (16, None, None, 2)
    assert two.note == "learning rate 0.1 prefers batch 16 (n=2, no interval)"


def test_the_batch_that_an_lr_prefers():
    rows = [
        # means .70, .84, .80: 32 is preferred; the seeds' own best are 32, 32, 64
        *seeds(16, 0.70, 0.70, 0.70, lr=0.1),
        *seeds(32, 0.90, 0.88, 0.74, lr=0.1),
        *seeds(64, 0.80, 0.78, 0.82, lr=0.1),
        # the larger the better: the grid ends too early
        *seeds(16, 0.5, 0.5, 0.5, lr=0.4),
        *seeds(32, 0.6, 0.6, 0.6, lr=0.4),
        *seeds(64, 0.7, 0.7, 0.7, lr=0.4),
    ]
    slow, fast = analyze(rows).preferred
    # log2: 5, 5, 6: mean 16/3, s = 1/√3, ± 4.302653 / 3 = 1.434218
    assert (slow.lr, slow.batch, slow.edge, slow.n) == (0.1, 32, None, 3)
    assert (slow.low_batch, slow.high_batch) == (
        pytest.approx(2 ** (16 / 3 - 1.434218)),
        pytest.approx(2 ** (16 / 3 + 1.434218)),
    )
    assert "(n=3, interval over the seeds' own best batches 15 to 109)" in slow.note
    assert (fast.lr, fast.batch, fast.edge) == (0.4, 64, "upper")
    assert (fast.low_batch, fast.high_batch) == (pytest.approx(64), pytest.approx(64))
    assert fast.note.endswith("it is the upper end of the grid: widen it")


def test_a_best_value_on_the_edge_is_flagged_for_every_field_of_the_grid():
    inside = [
        row(batch, 0.9 if (batch, lr) == (32, 0.2) else 0.5, lr=lr) for batch in (16, 32, 64) for lr in (0.1, 0.2, 0.4)
    ]
    assert analyze(inside).edge_warnings == ()
    corner = [row(batch, batch / 100 + lr, lr=lr) for batch in (16, 32, 64) for lr in (0.1, 0.2, 0.4)]
    assert analyze(corner).edge_warnings == (
        "the best global_batch is 64, the largest of its grid: a better one may lie outside",
        "the best optimizer.lr is 0.4, the largest of its grid: a better one may lie outside",
    )
    # 0.4 was tried and diverged: 0.2 is not at the end
    diverged = [row(16, 0.5), row(16, 0.6, lr=0.2), row(16, None, lr=0.4, status="diverged")]
    assert analyze(diverged).edge_warnings == ()


def test_lrs_that_look_alike_in_a_table_are_not_taken_for_seeds():
    lrs = (0.12345671, 0.12345672)
    assert [group.n for group in analyze([row(16, 0.5, lr=lr) for lr in lrs]).groups] == [1, 1]
    assert [line.split(",")[2] for line in format_table([row(16, 0.5, lr=r) for r in lrs], Path(".")).splitlines()] == [
        "optimizer.lr",
        *map(str, lrs),
    ]


def test_variants_that_differ_in_the_batch_alone_are_one_curve():
    def legw(batch, metric):
        return RunResult(f"LEGW {batch}", {}, 0, batch, 0.1, "done", "test_accuracy", metric, Path("r"), "same")

    other = RunResult("Adam 8192", {}, 0, 8192, 0.001, "done", "test_accuracy", 0.7, Path("r"), "other")
    (curve,) = analyze([legw(8192, 0.8), legw(1024, 0.8), legw(128, 0.9), other]).curves
    assert curve.label == "LEGW"
    assert [group.global_batch for group in curve.groups] == [128, 1024, 8192]


def test_nothing_yet():
    found = analyze([row(16, None, status="missing"), row(32, None, status="missing")])
    assert (found.best, found.preferred, found.edge_warnings) == (None, (), ())
    assert found.groups[0].unfinished == 1


def test_the_table_has_a_line_for_every_run():
    rows = [row(16, 0.5), row(32, None, status="diverged"), row(64, None, status="missing")]
    text = format_table(rows, Path("."))
    assert text.splitlines()[0] == (
        "variant,global_batch,optimizer.lr,seed,status,test_accuracy,"
        "diverged_at_step,epochs,steps,seconds,samples_per_second,ranks,folder,problem"
    )
    assert text.splitlines()[1] == ",16,0.1,0,done,0.5,,,,,,,runs/run-16-0.1-0,"
    assert text.splitlines()[2] == ",32,0.1,0,diverged,,,,,,,,runs/run-32-0.1-0,"
    assert len(text.splitlines()) == 4


def test_samples_to_a_target_give_the_critical_batch_of_each_method():
    def reaching(batch, samples, variant, **about):
        crossings = {"crossings": {"test_loss=0.5": samples and {"samples": samples, "steps": samples / batch}}}
        return row(batch, 0.9, variant=variant, crossings=crossings, **about)

    rows = [reaching(b, 1000 * (1 + b / 500), "momentum", seed=s) for b in (50, 100, 200) for s in (0, 1)]
    rows += [reaching(b, 1000 * (1 + b / 4000), "muon", seed=s) for b in (50, 100, 200) for s in (0, 1)]
    for seed in (0, 1):
        rows += [reaching(800, None, "momentum", seed=seed), row(800, None, seed, status="diverged", variant="muon")]
    rows += [row(1600, None, status="running", variant="muon")]
    found = analyze(rows, targets=["test_loss=0.5"])
    momentum, muon = found.to_targets
    assert (momentum.label, momentum.fit.batch) == ("momentum, optimizer.lr=0.1", pytest.approx(500))
    assert (muon.fit.batch, muon.fit.small_batch_samples) == (pytest.approx(4000), pytest.approx(1000))
    assert [(point.global_batch, point.reached, point.runs) for point in muon.fit.points][-1] == (800, 0, 2)
    assert any("momentum" in note and "which the fit expects after 2,600 samples" in note for note in found.notes)
    assert any(note.endswith("muon, optimizer.lr=0.1 extends it") for note in found.notes)
    table = format_table(rows, Path("."), ["test_loss=0.5"])
    assert table.splitlines()[0].endswith("samples to test_loss=0.5,folder,problem")
