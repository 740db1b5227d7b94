"""From hand-written rounds of the calibration program to a machine, to simulated steps, to a page."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, replace

import pytest
from hand import PROFILE
from test_measured_timings import one, timings

from bigbatch.scaling import horovod
from bigbatch.scaling.machine import find_machine
from bigbatch.scaling.measured import asked, calibration, predicted, shown, written
from bigbatch.scaling.measured.calibration import CalibrationRound
from bigbatch.scaling.measured.calibration_program import Calibrated, Loaded
from bigbatch.scaling.measured.cases import Case
from bigbatch.scaling.measured.measurement import Measurement


def calibrated(rank: int, *, all_reduces_us: tuple[float, float, float], slower: float = 1.0) -> Calibrated:
    """A rank of one round: 8 bytes, 4 kB and 16 MB, a step of 3.3 ms alone and `slower` times that beside the other."""
    sizes = (8, 4096, 16_000_000)
    return Calibrated(
        rank=rank,
        all_reduces={size: [us, us] for size, us in zip(sizes, all_reduces_us, strict=True)},
        alone=asdict(PROFILE) if rank == 0 else None,
        alone_in_ddp=asdict(PROFILE.scale_times(1.1)) if rank == 0 else None,
        together_us=[slower * PROFILE.compute_us] * 3,
        loaded=[Loaded(bytes=8, sent_us=900.0, cpu_us=150.0), Loaded(bytes=4096, sent_us=1000.0, cpu_us=250.0)],
    )


ROUNDS = [
    CalibrationRound((
        calibrated(0, all_reduces_us=(200.0, 300.0, 15_000.0), slower=1.25),
        calibrated(1, all_reduces_us=(210.0, 250.0, 15_000.0), slower=1.2),
    )),
    CalibrationRound((
        calibrated(0, all_reduces_us=(220.0, 240.0, 14_000.0), slower=1.1),
        calibrated(1, all_reduces_us=(190.0, 260.0, 16_000.0), slower=1.6),
    )),
]  # fmt: skip


def test_a_machine_is_made_of_medians():
    found = calibration.calibration(ROUNDS)
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
    def beside(rank: int, *steps_us: float) -> Calibrated:
        return calibrated(rank, all_reduces_us=(1.0, 2.0, 3.0)).model_copy(update={"together_us": list(steps_us)})

    ranks = beside(0, 4000.0, 5000.0, 4000.0), beside(1, 4500.0, 4000.0, 4000.0)
    # the slower ones: 4500, 5000, 4000; all of them: 4000 in the middle. Of two exponential ranks the slower is half of
    # their deviation behind the mean
    assert calibration.calibration([CalibrationRound(ranks)]).machine.jitter.fraction == pytest.approx(2 * 0.125)
    alike = beside(0, 4000.0, 4000.0), beside(1, 4000.0, 4000.0)
    assert calibration.calibration([CalibrationRound(alike)]).machine.jitter.fraction == 0


def horovods(rank: int) -> Calibrated:
    return Calibrated(
        rank=rank,
        all_reduces={8: [0.0], 4096: [300.0], 16_000_000: [10_000.0]},
        loaded=[Loaded(bytes=8, cpu_us=0.0), Loaded(bytes=4096, cpu_us=60.0)],
        cycles_share=0.2,
    )


def test_horovods_messages_have_their_own_latency_and_bytes_no_faster_than_torchs():
    own = (horovods(0), horovods(1))
    found = calibration.calibration([CalibrationRound(ROUNDS[0].ranks, own)]).machine.links.horovod
    # torch's 16 MB take 14.8 ms more than its 8 bytes, Horovod's 10 ms
    assert found.points == ((8, 1.0), (4096, 300.0), (16e6, 14_801.0))
    # beside computing torch's 4 kB take .1 ms more than its 8 bytes, 16 MB 59.1
    assert found.busy_points == ((8, 1.0), (4096, 300.0), (16e6, 59_101.0))
    assert found.cpu_points == ((8, 0.0), (4096, 60.0), (16e6, pytest.approx(59_101 / 5)))


def test_a_cycle_costs_its_share_of_the_time_from_one_to_the_next():
    machine = calibration.calibration([CalibrationRound(ROUNDS[0].ranks, (horovods(0), horovods(1)))]).machine
    # questions take 900 µs beside computing, less than a cycle of 1 ms
    assert machine.cycle_cost_us == pytest.approx(200)
    step = horovod.simulate_step(PROFILE, horovod.Config(cycle_ms=1.0, fusion_mb=0.0), machine, 2)
    assert step.profile.forward_us == pytest.approx(PROFILE.forward_us / 0.8)


def test_copies_are_as_fast_as_in_the_median_round():
    copying = [
        CalibrationRound(tuple(rank.model_copy(update={"copy_us": us}) for rank in ROUNDS[0].ranks))
        for us in (4000.0, 3200.0, 2000.0)
    ]
    assert calibration.calibration(copying).machine.copy_gb_s == pytest.approx(5.0)  # 16 MB in 3.2 ms
    assert calibration.calibration(ROUNDS).machine.copy_gb_s is None


def test_steps_on_a_busy_machine_judge_no_simulation(measurement):
    busy = [replace(one, others_cores=1.5) for one in measurement.rounds]
    found = replace(measurement, rounds=tuple(busy))
    assert measurement.refused == ""
    assert "within 25%" in written.words_of(measurement)
    assert "not judged by these: the machine was too busy" in written.words_of(found)
    assert all(row[4:6] == ["", ""] and "%" not in row[6] for row in written.validation_rows(found))
    assert all("%" in row[4] and "%" in row[6] for row in written.validation_rows(measurement))
    assert not any("%" in row[-1] for row in shown.time_rows(found))


def test_a_small_message_is_not_slower_than_a_large_one():
    assert calibration.rising([(8, 300.0), (64, 200.0), (512, 250.0)]) == ((8, 200.0), (64, 200.0), (512, 250.0))


def test_sizes_reach_the_whole_model():
    assert calibration.sizes(1_000_000) == [8, 4096, 16_384, 65_536, 262_144, 1_048_576]


def test_engines_options_are_the_simulators():
    ddp = predicted.simulated_options("ddp", {"bucket_mb": None}, 8 * 2**20)
    assert ddp == {"bucket_mb": 2.0, "first_bucket_mb": 2.0}
    horovod = {"cycle_ms": 5.0, "fusion_mb": 64.0, "cache_capacity": 0}
    assert predicted.simulated_options("horovod", horovod, 8) == {
        "cycle_ms": 5.0, "fusion_mb": 64.0, "cache_capacity": 0,
    }  # fmt: skip


@pytest.fixture
def measurement(recwarn):
    question = asked.asked(
        "mlp", engines="ddp", ranks="1,2", rank_batch=8, sample_shape=(1, 8, 8), classes=10, rounds=1, steps=3,
        hosts="", sweep=True, settings=[], out=None,
    )  # fmt: skip
    rounds = [one(case, 10.0 if case.engine == "local" else 12.5) for case in question.cases]
    return Measurement(question, tuple(rounds), 2, calibration=calibration.calibration(ROUNDS))


def test_a_simulated_step_is_set_beside_every_measured_one_of_two_ranks(measurement):
    found = {prediction.case: prediction for prediction in measurement.predicted}
    assert set(found) == {case for case in measurement.asked.cases if case.ranks == 2}
    alone = predicted.Predicted(Case("ddp", 2, 8), measured_s=0.010, simulated_s=0.0125, calibrated_s=0.008)
    assert (alone.error, alone.calibrated_error) == pytest.approx((0.25, -0.2))
    assert alone.holds
    assert not replace(alone, simulated_s=0.0126).holds


ONE_BUCKET = Case("ddp", 2, 8, (("bucket_mb", 25.0),))
TRANSFER_US = 245 + (1_500_000 - 4096) * (14_500 - 245) / (16_000_000 - 4096)  # of 1.5 MB, after the backward pass


def test_a_simulated_step_by_hand(measurement):
    setting = predicted.simulation(ONE_BUCKET, measurement.asked.subject, measurement.calibration)
    # 3.3 ms, a tenth more in DDP, contention 1.2875, the slower rank behind by 1.25 / 1.225 and 1.6 / 1.35 - 1
    behind = ((1.25 / 1.225 - 1) + (1.6 / 1.35 - 1)) / 2
    assert setting.step_us(2) == pytest.approx(3300 * 1.1 * 1.2875 * (1 + behind) + TRANSFER_US)


def test_a_simulation_starts_from_what_ranks_compute_in_the_same_start(measurement):
    start = one(ONE_BUCKET, 10.0)
    steps_s = ([4e-3, 4e-3, 5e-3], [4e-3, 4.3e-3, 4e-3])
    pairs = zip(start.records, steps_s, strict=True)
    start = replace(start, records=tuple(record.model_copy(update={"silent_s": times}) for record, times in pairs))
    assert start.silent_s == [4e-3, 4.3e-3, 5e-3]
    subject, calibrated = measurement.asked.subject, measurement.calibration
    found = predicted.predicted(timings([start]), subject, calibrated)[0]
    assert found.simulated_s == pytest.approx(1e-6 * (13_300 / 3 + TRANSFER_US))
    assert found.calibrated_s == pytest.approx(1e-6 * predicted.simulation(ONE_BUCKET, subject, calibrated).step_us(2))
    assert found.silent_s == 4.3e-3


def test_horovods_cycles_are_in_those_steps_already(measurement):
    costly = measurement.calibration.machine.model_copy(update={"cycle_cost_us": 500.0})
    calibrated = replace(measurement.calibration, machine=costly)
    case = Case("horovod", 2, 8, (("cycle_ms", 20.0),))
    setting = predicted.simulation(case, measurement.asked.subject, calibrated)
    assert predicted.step_us(setting, [4e-3] * 8) == pytest.approx(20_000)  # one cycle each
    setting = replace(setting, config=setting.config.model_copy(update={"cycle_ms": 1.0}))
    free = replace(setting, machine=costly.model_copy(update={"cycle_cost_us": 0.0}))
    assert predicted.step_us(setting, [4e-3] * 8) == predicted.step_us(free, [4e-3] * 8)


def test_a_measurement_is_written_with_its_machine_and_its_page(measurement, tmp_path):
    (tmp_path / "trace_ddp.svg").write_text('<?xml version="1.0"?><svg id="a-trace"></svg>')
    paths = written.write(measurement, _published(), tmp_path, "bigbatch scale measure mlp --out o")
    assert paths[-1].name == "measure.html"
    assert find_machine(str(tmp_path / "machine.json")) == measurement.calibration.machine
    with (tmp_path / "measure.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(measurement.asked.cases)
    assert float(rows[0]["best_ms"]) == pytest.approx(10.0)
    found = json.loads((tmp_path / "measure.json").read_text())
    assert [entry["efficiency"] for entry in found["efficiencies"]] == pytest.approx([0.8, 0.4])
    page = (tmp_path / "measure.html").read_text()
    for text in ("80.0%", "Simulated against measured", "contention 1.288", "Yin et al. 2019", 'id="a-trace"',
                 "bigbatch scale measure mlp --out o", "bucket cap"):  # fmt: skip
        assert text in page, text


def _published():
    from bigbatch.scaling.published import compare_published

    return compare_published()
