"""The arithmetic of measurements on records written by hand, simulated steps beside them, and one with real ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import hand_measurement
import pytest
from hand_measurement import ALONE, PAIR, equal_steps, message, phases, rank_timing

from bigbatch.scaling.measurement.measurement import (
    StepPrediction,
    build_simulator,
    compute_efficiency,
    expected_step_us,
    group_rounds,
    predict_step,
    simulator_options,
)
from bigbatch.scaling.measurement.request import Comparison
from bigbatch.scaling.measurement.rounds import MeasuredRound
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


@pytest.fixture
def measurement(recwarn):
    return hand_measurement.measurement()


def test_engines_options_are_the_simulators():
    ddp = simulator_options("ddp", {"bucket_mb": None}, 8 * 2**20)
    assert ddp == {"bucket_mb": 2.0, "first_bucket_mb": 2.0}
    horovod = {"cycle_ms": 5.0, "fusion_mb": 64.0, "cache_capacity": 0}
    assert simulator_options("horovod", horovod, 8) == {
        "cycle_ms": 5.0, "fusion_mb": 64.0, "cache_capacity": 0,
    }  # fmt: skip


def test_a_simulated_step_is_set_beside_every_measured_one_of_two_ranks(measurement):
    found = {prediction.configuration: prediction for prediction in measurement.predictions}
    assert set(found) == {one for one in measurement.request.configurations if one.ranks == 2}
    alone = StepPrediction(EngineConfiguration("ddp", 2, 8), measured_s=0.010, simulated_s=0.0125, calibrated_s=0.008)
    assert (alone.error, alone.calibrated_error) == pytest.approx((0.25, -0.2))
    assert alone.within_tolerance
    assert not replace(alone, simulated_s=0.0126).within_tolerance


ONE_BUCKET = EngineConfiguration("ddp", 2, 8, (("bucket_mb", 25.0),))
TRANSFER_US = 245 + (1_500_000 - 4096) * (14_500 - 245) / (16_000_000 - 4096)  # of 1.5 MB, after the backward pass


def test_a_simulated_step_by_hand(measurement):
    setting = build_simulator(ONE_BUCKET, measurement.request.model, measurement.calibration)
    # 3.3 ms, a tenth more in DDP, contention 1.2875, the slower rank behind by 1.25 / 1.225 and 1.6 / 1.35 - 1
    behind = ((1.25 / 1.225 - 1) + (1.6 / 1.35 - 1)) / 2
    assert setting.step_us(2) == pytest.approx(3300 * 1.1 * 1.2875 * (1 + behind) + TRANSFER_US)


def test_a_simulation_starts_from_what_ranks_compute_in_the_same_start(measurement):
    start = equal_steps(ONE_BUCKET, 10.0)
    steps_s = ([4e-3, 4e-3, 5e-3], [4e-3, 4.3e-3, 4e-3])
    pairs = zip(start.ranks, steps_s, strict=True)
    start = replace(
        start, ranks=tuple(rank.model_copy(update={"without_communication_s": times}) for rank, times in pairs)
    )
    assert start.without_communication_s == [4e-3, 4.3e-3, 5e-3]
    model, calibrated = measurement.request.model, measurement.calibration
    found = predict_step(group_rounds([start])[ONE_BUCKET], build_simulator(ONE_BUCKET, model, calibrated))
    assert found.simulated_s == pytest.approx(1e-6 * (13_300 / 3 + TRANSFER_US))
    assert found.calibrated_s == pytest.approx(1e-6 * build_simulator(ONE_BUCKET, model, calibrated).step_us(2))
    assert found.without_communication_s == 4.3e-3


def test_horovods_cycles_are_in_those_steps_already(measurement):
    costly = measurement.calibration.machine.model_copy(update={"cycle_cost_us": 500.0})
    calibrated = replace(measurement.calibration, machine=costly)
    case = EngineConfiguration("horovod", 2, 8, (("cycle_ms", 20.0),))
    setting = build_simulator(case, measurement.request.model, calibrated)
    assert expected_step_us(setting, [4e-3] * 8) == pytest.approx(20_000)  # one cycle each
    setting = replace(setting, engine=setting.engine.model_copy(update={"cycle_ms": 1.0}))
    free = replace(setting, machine=costly.model_copy(update={"cycle_cost_us": 0.0}))
    assert expected_step_us(setting, [4e-3] * 8) == expected_step_us(free, [4e-3] * 8)


def test_ctrl_c_keeps_the_rounds_that_are_complete(tmp_path):
    pids = tmp_path / "pids"
    pids.mkdir()
    model = ["traced_models:InterruptingLater", "--set", f"model.pids={pids}", "--set", "model.after=6"]
    # a round: two ranks that calibrate, one process with the batch of one rank and one with that of both, two ranks
    done = subprocess.run(
        [sys.executable, "-m", "bigbatch", "scale", "measure", *model, "--engines", "ddp", "--sample", "1,8,8",
         "--rounds", "3", "--steps", "1", "--out", str(tmp_path / "out")],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "round 1 of 3: local 1x8: " in done.stderr
    assert "what follows is of the 1 complete of 3 rounds" in done.stderr
    assert "Traceback" not in done.stderr
    found = json.loads((tmp_path / "out" / "measure.json").read_text())
    assert {one["round"] for one in found["rounds"]} == {0}
    assert len(found["cases"]) == 3
    counts = {one["case"]: [len(rank["without_communication_s"]) for rank in one["ranks"]] for one in found["rounds"]}
    assert counts == {"local 1x8": [0], "local 1x16": [0], "ddp 2x8": [12, 12]}
    assert (tmp_path / "out" / "machine.json").exists()
