"""The arithmetic of measurements, on records written by hand."""

from __future__ import annotations

import pytest
from hand_measurement import ALONE, PAIR, equal_steps, message, phases, rank_timing

from bigbatch.scaling.measurement.request import Comparison
from bigbatch.scaling.measurement.rounds import MeasuredRound
from bigbatch.scaling.measurement.timings import compute_efficiency, group_rounds
from bigbatch.scaling.workload import EngineConfiguration


def test_a_step_ends_with_its_slowest_rank_and_a_round_is_its_median_step():
    records = (
        rank_timing(0, [0.010, 0.020, 0.090], [0.01, 0.02, 0.03]),
        rank_timing(1, [0.030, 0.010, 0.040], [0.03, 0.02, 0.01]),
    )
    found = MeasuredRound(PAIR, records, None, 0.0)
    assert found.wall_s == 0.030  # of 30, 20, 90
    assert found.cpu_s == 0.02  # of 20, 20, 20


def test_best_and_median_are_over_rounds():
    found = group_rounds([equal_steps(ALONE, ms, number=number) for number, ms in enumerate((12.0, 10.0, 40.0))])[ALONE]
    assert (found.best_s, found.median_s) == (0.010, 0.012)
    assert found.best.number == 1


@pytest.mark.parametrize(
    ("scaling", "alone_batch", "alone_ms", "pair_ms", "expected"),
    # weak: 10 / 12.5. Strong: one process takes 20 ms for 16 samples, two ranks 12.5 ms for 8 each: 20 / (2 · 12.5)
    [("weak", 8, 10.0, 12.5, 0.8), ("strong", 16, 20.0, 12.5, 0.8), ("strong", 16, 16.0, 12.5, 0.64)],
)
def test_efficiency_is_throughput_over_ranks_times_that_of_one(scaling, alone_batch, alone_ms, pair_ms, expected):
    alone = EngineConfiguration("local", 1, alone_batch)
    found = group_rounds([equal_steps(alone, alone_ms), equal_steps(PAIR, pair_ms)])
    answer = compute_efficiency(Comparison(scaling, alone, PAIR), found, cores=2)
    assert answer.value == pytest.approx(expected)
    assert answer.refusal == ""


@pytest.mark.parametrize(
    ("alone", "pair", "cores", "words"),
    [
        (
            equal_steps(ALONE, 11.2, cpu_ms=10.0),
            equal_steps(PAIR, 12.0),
            2,
            "one process alone needed 1.12 times its CPU time",
        ),
        (equal_steps(ALONE, 10.0), equal_steps(PAIR, 12.0, others=0.4), 2, "other processes used 0.4 of its 2 cores"),
        (equal_steps(ALONE, 10.0), equal_steps(PAIR, 12.0), 1, "2 ranks took turns on 1 cores"),
    ],
)
def test_an_efficiency_of_a_busy_machine_is_refused_and_its_times_are_kept(alone, pair, cores, words):
    answer = compute_efficiency(Comparison("weak", ALONE, PAIR), group_rounds([alone, pair]), cores)
    assert answer.value is None
    assert words in answer.refusal
    assert (answer.alone.best_s, answer.ranks.best_s) == (alone.wall_s, 0.012)


@pytest.mark.parametrize(("cpu_ms", "others", "cores"), [(9.1, 0.2, 2), (10.0, 2.2, 4), (10.0, None, 1)])
def test_a_machine_with_room_is_believed(cpu_ms, others, cores):
    found = group_rounds([equal_steps(ALONE, 10.0, cpu_ms=cpu_ms), equal_steps(PAIR, 12.0, others=others)])
    assert compute_efficiency(Comparison("weak", ALONE, PAIR), found, cores).value == pytest.approx(10 / 12)


def test_a_disturbed_round_does_not_decide():
    rounds = [
        equal_steps(ALONE, 30.0, cpu_ms=10.0),
        equal_steps(ALONE, 10.0, number=1),
        equal_steps(PAIR, 50.0, others=1.5),
        equal_steps(PAIR, 12.0),
    ]
    assert compute_efficiency(Comparison("weak", ALONE, PAIR), group_rounds(rounds), 2).value == pytest.approx(10 / 12)


def test_phases_are_medians_and_unknown_ones_stay_unknown():
    messages = (message(6000, 7000, 50), message(4000, 5000, 900))
    steps = [phases(1000.0, messages), phases(4000.0, messages), phases(2000.0, messages)]
    ranks = (rank_timing(0, [0.01], [0.01], steps), rank_timing(1, [0.01], [0.01], steps))
    found = group_rounds([MeasuredRound(PAIR, ranks, 0.0, 0.5)])[PAIR].phases
    assert found.exposed_us == 2000
    assert found.message_bytes == (900, 50)  # in the order of sending
    assert found.negotiation_us is None
    unknown = (rank_timing(0, [0.01], [0.01], [phases(None)]),)
    found = group_rounds([MeasuredRound(PAIR, unknown, 0.0, 0.5)])[PAIR].phases
    assert found.exposed_us is None
    assert found.overlapped_us is None
