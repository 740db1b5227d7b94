"""From hand-written rounds of the calibration to a machine."""

from __future__ import annotations

import pytest
from hand import PROFILE
from hand_measurement import ROUNDS, rank_calibration

from bigbatch.scaling import horovod
from bigbatch.scaling.measurement import calibration
from bigbatch.scaling.measurement.calibration import CalibrationRound, RankCalibration


def test_a_machine_is_made_of_medians():
    found = calibration.summarize_rounds(ROUNDS)
    machine = found.machine
    assert machine.links.points == ((8, 195.0), (4096, 245.0), (16e6, 14_500.0))  # of the last rank
    assert machine.control_us == 195
    assert machine.contention == pytest.approx((1.225 + 1.35) / 2)
    # 16 MB were not tried beside a step
    assert machine.links.busy_points == ((8, 900.0), (4096, 1000.0), (16e6, pytest.approx(14_500 * 1000 / 245)))
    assert machine.links.cpu_points == ((8, 150.0), (4096, 250.0), (16e6, pytest.approx(14_500 * 250 / 245)))
    assert machine.links.horovod is None
    assert machine.cycle_cost_us == 0
    assert found.profile == PROFILE
    assert found.profile_in_ddp == PROFILE.scale_times(1.1)


def test_jitter_is_how_far_the_slower_rank_of_a_step_is_behind():
    def beside(rank: int, *steps_us: float) -> RankCalibration:
        return rank_calibration(rank, all_reduces_us=(1.0, 2.0, 3.0)).model_copy(update={"together_us": list(steps_us)})

    ranks = beside(0, 4000.0, 5000.0, 4000.0), beside(1, 4500.0, 4000.0, 4000.0)
    # the slower ones: 4500, 5000, 4000; all of them: 4000 in the middle. Of two exponential ranks the slower is half of
    # their deviation behind the mean
    assert calibration.summarize_rounds([CalibrationRound(ranks)]).machine.jitter.fraction == pytest.approx(2 * 0.125)
    alike = beside(0, 4000.0, 4000.0), beside(1, 4000.0, 4000.0)
    assert calibration.summarize_rounds([CalibrationRound(alike)]).machine.jitter.fraction == 0


def horovod_calibration(rank: int) -> RankCalibration:
    return RankCalibration(
        rank=rank,
        all_reduces={8: [0.0], 4096: [300.0], 16_000_000: [10_000.0]},
        cpu_us={8: 0.0, 4096: 60.0},
        cycles_fraction=0.2,
    )


def test_horovods_messages_have_their_own_latency_and_bytes_no_faster_than_torchs():
    own = (horovod_calibration(0), horovod_calibration(1))
    found = calibration.summarize_rounds([CalibrationRound(ROUNDS[0].ranks, own)]).machine.links.horovod
    # torch's 16 MB take 14.8 ms more than its 8 bytes, Horovod's 10 ms
    assert found.points == ((8, 1.0), (4096, 300.0), (16e6, 14_801.0))
    # beside computing torch's 4 kB take .1 ms more than its 8 bytes, 16 MB 59.1
    assert found.busy_points == ((8, 1.0), (4096, 300.0), (16e6, 59_101.0))
    assert found.cpu_points == ((8, 0.0), (4096, 60.0), (16e6, pytest.approx(59_101 / 5)))


def test_a_cycle_costs_its_share_of_the_time_from_one_to_the_next():
    machine = calibration.summarize_rounds(
        [CalibrationRound(ROUNDS[0].ranks, (horovod_calibration(0), horovod_calibration(1)))]
    ).machine
    # questions take 900 µs beside computing, less than a cycle of 1 ms
    assert machine.cycle_cost_us == pytest.approx(200)
    step = horovod.SimulatedHorovod(cycle_ms=1.0, fusion_mb=0.0).simulate_step(PROFILE, machine, 2)
    assert step.profile.forward_us == pytest.approx(PROFILE.forward_us / 0.8)


def test_copies_are_as_fast_as_in_the_median_round():
    copying = [
        CalibrationRound(tuple(rank.model_copy(update={"copy_us": us}) for rank in ROUNDS[0].ranks))
        for us in (4000.0, 3200.0, 2000.0)
    ]
    assert calibration.summarize_rounds(copying).machine.copy_gb_s == pytest.approx(5.0)  # 16 MB in 3.2 ms
    assert calibration.summarize_rounds(ROUNDS).machine.copy_gb_s is None


def test_a_small_message_is_not_slower_than_a_large_one():
    assert calibration.make_monotonic([(8, 300.0), (64, 200.0), (512, 250.0)]) == (
        (8, 200.0),
        (64, 200.0),
        (512, 250.0),
    )


def test_sizes_reach_the_whole_model():
    assert calibration.all_reduce_sizes(1_000_000) == [8, 4096, 16_384, 65_536, 262_144, 1_048_576]
