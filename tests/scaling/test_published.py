"""What others measured: fitted on one point, and the committed table is what the command gives today."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hand import SUMMIT

from bigbatch.scaling import published, report
from bigbatch.scaling.machine import Jitter, find_machine, machine_names
from bigbatch.scaling.simulation import StepSimulator, configure_engine

RESULTS = Path(__file__).parents[2] / "results" / "scaling"


@pytest.fixture(scope="module")
def checked() -> list[published.PublishedComparison]:
    return published.compare_published()


def fit_jitter() -> float:
    """Find the jitter with which the simulator gives the published efficiency of the fitted point, by bisection."""
    point = published.FITTED
    profile, engine = published.profile_point(point, SUMMIT), configure_engine(point.engine, point.options)
    low, high = 0.0, 0.5
    for _ in range(50):
        middle = (low + high) / 2
        jittery = SUMMIT.model_copy(update={"jitter": Jitter(fraction=middle)})
        fast = StepSimulator(profile, engine, jittery).efficiency(point.ranks) > point.efficiency
        low, high = (middle, high) if fast else (low, middle)
    return low


def test_the_shipped_jitter_is_the_one_that_the_fit_gives():
    assert published.FITTED.machine == "summit"
    assert fit_jitter() == pytest.approx(SUMMIT.jitter.fraction, rel=0.01)
    assert {find_machine(name).jitter for name in machine_names() if name != "here"} == {SUMMIT.jitter}


def test_one_point_is_fitted_and_the_others_are_not(checked):
    assert [one.published for one in checked if one.fitted] == [published.FITTED]
    assert checked[0].error == pytest.approx(0, abs=0.001)
    assert len(checked) == 1 + len(published.TESTED)
    assert len({(one.published.what, one.published.ranks) for one in checked}) == len(checked)


def test_where_nothing_is_known_of_the_layers_only_the_waiting_is_left(checked):
    # 1 / (1 + 0.01757 · (H_27360 − 1)) with H = ln 27360 + 0.57722 = 10.7941
    point = next(one for one in checked if one.published.ranks == 27360)
    assert point.efficiency == pytest.approx(1 / (1 + 0.01757 * 9.7941), rel=1e-4)


def test_the_committed_table_is_what_the_command_gives(checked):
    with (RESULTS / "published.csv").open(newline="") as file:
        committed = list(csv.DictReader(file))
    today = report.published_rows(checked)
    assert [list(row.values()) for row in committed] == [[str(cell) for cell in row.values()] for row in today]


def test_failures_are_said_in_words(checked):
    lines = report.describe_failures(checked)
    wrong = [one for one in checked if one.verdict == "fails"]
    assert len(lines) == len(wrong)
    assert all(one.published.what in line for one, line in zip(wrong, lines, strict=True))
    # a jitter that makes everything too slow has to be told on every point that it does not bound
    bad = published.compare_published(Jitter(fraction=0.2))
    assert all(one.verdict == "fails" for one in bad if not one.fitted and one.published.ranks > 100)
