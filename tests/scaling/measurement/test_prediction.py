"""Simulated steps beside measured ones, by hand."""

from __future__ import annotations

from dataclasses import replace

import hand_measurement
import pytest
from hand_measurement import equal_steps

from bigbatch.scaling.measurement import prediction
from bigbatch.scaling.measurement.prediction import StepPrediction
from bigbatch.scaling.measurement.timings import group_rounds
from bigbatch.scaling.workload import EngineConfiguration


@pytest.fixture
def measurement(recwarn):
    return hand_measurement.measurement()


def test_engines_options_are_the_simulators():
    ddp = prediction.simulator_options("ddp", {"bucket_mb": None}, 8 * 2**20)
    assert ddp == {"bucket_mb": 2.0, "first_bucket_mb": 2.0}
    horovod = {"cycle_ms": 5.0, "fusion_mb": 64.0, "cache_capacity": 0}
    assert prediction.simulator_options("horovod", horovod, 8) == {
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
    setting = prediction.build_simulator(ONE_BUCKET, measurement.request.model, measurement.calibration)
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
    found = prediction.predict_steps(group_rounds([start]), model, calibrated)[0]
    assert found.simulated_s == pytest.approx(1e-6 * (13_300 / 3 + TRANSFER_US))
    assert found.calibrated_s == pytest.approx(
        1e-6 * prediction.build_simulator(ONE_BUCKET, model, calibrated).step_us(2)
    )
    assert found.without_communication_s == 4.3e-3


def test_horovods_cycles_are_in_those_steps_already(measurement):
    costly = measurement.calibration.machine.model_copy(update={"cycle_cost_us": 500.0})
    calibrated = replace(measurement.calibration, machine=costly)
    case = EngineConfiguration("horovod", 2, 8, (("cycle_ms", 20.0),))
    setting = prediction.build_simulator(case, measurement.request.model, calibrated)
    assert prediction.expected_step_us(setting, [4e-3] * 8) == pytest.approx(20_000)  # one cycle each
    setting = replace(setting, engine=setting.engine.model_copy(update={"cycle_ms": 1.0}))
    free = replace(setting, machine=costly.model_copy(update={"cycle_cost_us": 0.0}))
    assert prediction.expected_step_us(setting, [4e-3] * 8) == prediction.expected_step_us(free, [4e-3] * 8)
