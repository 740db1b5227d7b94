"""The arithmetic of measurements, on records written by hand."""

from __future__ import annotations

import pytest

from bigbatch.scaling.measured.cases import Case, Comparison, Subject, comparisons, sweeps
from bigbatch.scaling.measured.notes import Noted, Sent, overlapped_s
from bigbatch.scaling.measured.rank_program import Record
from bigbatch.scaling.measured.rounds import rotated
from bigbatch.scaling.measured.timings import Round, efficiency, timings

ALONE, PAIR = Case("local", 1, 8), Case("ddp", 2, 8)


def noted(exposed_s: float | None = 0.002, sent: list[Sent] | None = None) -> Noted:
    return Noted(
        started_ns=0, forward_s=0.003, backward_s=0.006, exposed_s=exposed_s, overlapped_s=0.001, update_s=0.0005,
        sent=sent or [],
    )  # fmt: skip


def record(rank: int, wall_s: list[float], cpu_s: list[float], steps: list[Noted] | None = None) -> Record:
    return Record(
        rank=rank, ranks=2, host="here", wall_s=wall_s, cpu_s=cpu_s, noted=steps or [], bucket_bytes=[], load_1min=0.5
    )


def one(case: Case, wall_ms: float, *, cpu_ms: float | None = None, others: float | None = 0.0, number: int = 0):
    """A round whose every step took the same."""
    wall, cpu = [wall_ms / 1e3] * 3, [(cpu_ms or wall_ms) / 1e3] * 3
    return Round(case, number, tuple(record(rank, wall, cpu) for rank in range(case.ranks)), others, 0.5)


def test_a_step_ends_with_its_slowest_rank_and_a_round_is_its_median_step():
    records = (
        record(0, [0.010, 0.020, 0.090], [0.01, 0.02, 0.03]),
        record(1, [0.030, 0.010, 0.040], [0.03, 0.02, 0.01]),
    )
    found = Round(PAIR, 0, records, None, 0.0)
    assert found.wall_s == 0.030  # of 30, 20, 90
    assert found.cpu_s == 0.02  # of 20, 20, 20


def test_best_and_median_are_over_rounds():
    found = timings([one(ALONE, ms, number=number) for number, ms in enumerate((12.0, 10.0, 40.0))])[ALONE]
    assert (found.best_s, found.median_s) == (0.010, 0.012)
    assert found.best.number == 1


@pytest.mark.parametrize(
    ("scaling", "alone_batch", "alone_ms", "pair_ms", "expected"),
    # weak: 10 / 12.5. Strong: one process takes 20 ms for 16 samples, two ranks 12.5 ms for 8 each: 20 / (2 · 12.5)
    [("weak", 8, 10.0, 12.5, 0.8), ("strong", 16, 20.0, 12.5, 0.8), ("strong", 16, 16.0, 12.5, 0.64)],
)
def test_efficiency_is_throughput_over_ranks_times_that_of_one(scaling, alone_batch, alone_ms, pair_ms, expected):
    alone = Case("local", 1, alone_batch)
    found = timings([one(alone, alone_ms), one(PAIR, pair_ms)])
    answer = efficiency(Comparison(scaling, alone, PAIR), found, cores=2)
    assert answer.value == pytest.approx(expected)
    assert answer.refused == ""


@pytest.mark.parametrize(
    ("alone", "pair", "cores", "words"),
    [
        (one(ALONE, 11.2, cpu_ms=10.0), one(PAIR, 12.0), 2, "one process alone needed 1.12 times its CPU time"),
        (one(ALONE, 10.0), one(PAIR, 12.0, others=0.4), 2, "other processes used 0.4 of its 2 cores"),
        (one(ALONE, 10.0), one(PAIR, 12.0), 1, "2 ranks took turns on 1 cores"),
    ],
)
def test_an_efficiency_of_a_busy_machine_is_refused_and_its_times_are_kept(alone, pair, cores, words):
    answer = efficiency(Comparison("weak", ALONE, PAIR), timings([alone, pair]), cores)
    assert answer.value is None
    assert words in answer.refused
    assert (answer.alone.best_s, answer.ranks.best_s) == (alone.wall_s, 0.012)


@pytest.mark.parametrize(("cpu_ms", "others", "cores"), [(9.1, 0.2, 2), (10.0, 2.2, 4), (10.0, None, 1)])
def test_a_machine_with_room_is_believed(cpu_ms, others, cores):
    found = timings([one(ALONE, 10.0, cpu_ms=cpu_ms), one(PAIR, 12.0, others=others)])
    assert efficiency(Comparison("weak", ALONE, PAIR), found, cores).value == pytest.approx(10 / 12)


def test_a_disturbed_round_does_not_decide():
    rounds = [one(ALONE, 30.0, cpu_ms=10.0), one(ALONE, 10.0, number=1), one(PAIR, 50.0, others=1.5), one(PAIR, 12.0)]
    assert efficiency(Comparison("weak", ALONE, PAIR), timings(rounds), 2).value == pytest.approx(10 / 12)


def test_overlapped_communication_is_counted_once_and_until_the_last_gradient():
    sent = [Sent(start_s=1, end_s=3, bytes=4), Sent(start_s=2, end_s=5, bytes=4), Sent(start_s=8, end_s=12, bytes=4)]
    assert overlapped_s(sent, until_s=10) == 6  # 1 to 5 and 8 to 10


def test_phases_are_medians_and_unknown_ones_stay_unknown():
    messages = [Sent(start_s=0.006, end_s=0.007, bytes=50), Sent(start_s=0.004, end_s=0.005, bytes=900)]
    steps = [noted(0.001, messages), noted(0.004, messages), noted(0.002, messages)]
    found = timings([Round(PAIR, 0, (record(0, [0.01], [0.01], steps), record(1, [0.01], [0.01], steps)), 0.0, 0.5)])
    phases = found[PAIR].phases
    assert phases.exposed_s == 0.002
    assert phases.sent_bytes == (900, 50)  # in the order of sending
    assert phases.negotiation_s is None
    silent = timings([Round(PAIR, 0, (record(0, [0.01], [0.01], [noted(None)]),), 0.0, 0.5)])[PAIR].phases
    assert silent.exposed_s is None
    assert silent.overlapped_s is None


def test_every_case_leads_a_round_in_turn():
    cases = [ALONE, PAIR, Case("fsdp", 2, 8)]
    assert [rotated(cases, number)[0] for number in range(4)] == [*cases, ALONE]
    assert all(set(rotated(cases, number)) == set(cases) for number in range(4))


def test_weak_and_strong_scaling_ask_for_the_right_batches():
    found = comparisons(["local", "ddp"], [1, 2, 4], 8)
    pairs = [(one.scaling, one.alone.rank_batch, one.ranks.ranks, one.ranks.rank_batch) for one in found]
    assert pairs == [("weak", 8, 2, 8), ("weak", 8, 4, 8), ("strong", 32, 2, 16), ("strong", 32, 4, 8)]


def test_sweeps_change_one_setting_of_the_engines_at_hand():
    found = sweeps(["local", "ddp", "horovod"], 2, 8, 4 * 2**20)
    values = {
        (sweep.engine, sweep.setting): [dict(case.settings)[sweep.setting] for case in sweep.cases] for sweep in found
    }
    assert values["ddp", "bucket_mb"] == [0.25, 0.5, 1.0, 2.0, 4.0]
    assert values["horovod", "cycle_ms"] == [1.0, 2.5, 5.0, 10.0, 20.0]
    assert values["horovod", "fusion_mb"][0] == 0
    assert [sweep.engine for sweep in sweeps(["ddp"], 2, 8, 4 * 2**20)] == ["ddp"]


def test_a_case_reaches_its_engine():
    subject = Subject("mlp", {}, (1, 8, 8), 10, {"ddp": {"static_graph": True}})
    run = subject.run(Case("ddp", 2, 8, (("bucket_mb", 0.5),)))
    assert (run.engine.name, run.engine.bucket_mb, run.engine.static_graph) == ("ddp", 0.5, True)
    assert run.global_batch.global_batch == 16
