"""The fit of E0·(1 + B/Bc): by hand, on published tables, and where runs never reached the target."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import pytest

from bigbatch import critical_batch
from bigbatch.errors import Problem
from bigbatch.sweeps.critical_batch import compare_critical_batches

PUBLISHED = json.loads((Path(__file__).parent.parent / "data/reference_convergence_points.json").read_text())


def published(name: str) -> dict[int, list[float]]:
    return {int(batch): runs for batch, runs in PUBLISHED[name].items()}


def test_exact_points_give_the_exact_answer():
    # E0 = 1000, Bc = 500: 1000·(1 + B/500)
    found = critical_batch({100: [1200], 500: [2000], 1000: [3000], 2000: [5000]})
    assert (found.small_batch_samples, found.batch) == (pytest.approx(1000), pytest.approx(500))
    assert (found.low, found.high) == (pytest.approx(500), pytest.approx(500))  # every draw lies on the line
    assert found.points[1].steps == pytest.approx(4)
    assert "one run" in found.note


def test_relative_errors_are_minimised():
    batches, samples = [1, 2, 3], [1.0, 2.0, 2.0]
    found = critical_batch({b: [s] for b, s in zip(batches, samples, strict=True)})
    e0, slope = found.small_batch_samples, found.small_batch_samples / found.batch

    def loss(x, y):
        return sum(((x + y * b) / s - 1) ** 2 for b, s in zip(batches, samples, strict=True))

    least = loss(e0, slope)
    assert all(loss(e0 + dx, slope + dy) > least for dx in (-1e-3, 0, 1e-3) for dy in (-1e-3, 0, 1e-3) if dx or dy)


@pytest.mark.parametrize(
    ("table", "expected", "largest_error"), [("resnet50_lars", 46_900, 0.0605), ("bert_lamb", 12_700, 0.13)]
)
def test_published_tables(table, expected, largest_error):
    found = critical_batch(published(table), resamples=400)
    assert found.batch == pytest.approx(expected, rel=0.003)
    assert found.largest_error < largest_error
    assert found.low < expected < found.high
    assert found.high / found.low < 2.2
    assert found.note == ""


def test_the_interval_is_repeatable_and_narrower_with_agreeing_runs():
    noisy = {b: [e * 0.8, e * 1.25] for b, e in [(64, 1000), (256, 1500), (1024, 3000), (2048, 5500)]}
    calm = {b: [e * 0.99, e * 1.01] for b, (e, _) in [(b, (sum(runs) / 2, 0)) for b, runs in noisy.items()]}
    wide, narrow = (critical_batch(runs, resamples=300) for runs in (noisy, calm))
    assert wide == critical_batch(noisy, resamples=300)
    assert wide.high - wide.low > narrow.high - narrow.low


def test_samples_that_do_not_grow_have_no_critical_batch():
    found = critical_batch({64: [1000.0], 256: [900.0], 1024: [800.0]}, resamples=50)
    assert (found.batch, found.low, found.high) == (inf, inf, inf)
    assert found.describe() == "∞ (at least inf)"
    in_proportion = critical_batch({64: [640.0], 256: [2560.0], 1024: [10240.0]}, resamples=50)
    assert (in_proportion.batch, in_proportion.points[1].fitted) == (pytest.approx(0, abs=1e-9), pytest.approx(2560))


def test_runs_that_never_reached_the_target_are_points_and_not_fitted():
    line = {b: [1000 * (1 + b / 500)] * 2 for b in (100, 500, 1000)}
    censored = critical_batch(line | {2000: [4000.0, None]}, budget=6000)
    assert censored.batch == pytest.approx(500)  # 4,000, the faster run alone, would raise it
    last = censored.points[-1]
    assert (last.runs, last.reached, last.samples) == (2, 1, None)
    expected = (
        "1 of 2 runs at 2000 did not reach the target, which the fit expects after 5,000 samples: Bc is too large"
    )
    assert censored.note == expected
    assert "too large" not in critical_batch(line | {8000: [None, None]}, budget=6000).note  # expected after 17,000
    assert critical_batch({100: [1200], 500: [2000], 1000: [None]}).batch is None


def test_who_extends_it():
    def fit(critical, runs=2):
        return critical_batch({b: [1000 * (1 + b / critical)] * runs for b in (64, 256, 1024)}, resamples=50)

    extends, overlaps, shortens = compare_critical_batches(
        {"momentum": fit(500), "muon": fit(2000), "same": fit(500), "sgd": fit(100)}
    )
    assert extends.endswith("muon extends it")
    assert overlaps.endswith("no difference shown")
    assert shortens.endswith("sgd shortens it")
    (unsure,) = compare_critical_batches({"momentum": fit(500), "muon": fit(2000, runs=1)})
    assert unsure.endswith("cannot tell with fewer than 2 runs at a batch")


def test_wrong_numbers_are_refused():
    with pytest.raises(Problem, match="at least 1, got 0"):
        critical_batch({0: [1.0]})
    with pytest.raises(Problem, match="give None for a run that never reached it"):
        critical_batch({1: [1.0], 2: [inf], 3: [1.0]})
