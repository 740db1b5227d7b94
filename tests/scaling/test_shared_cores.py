"""Computing and sending on the same cores, by hand: a backward pass of 500 + 700 + 900 µs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hand import PROFILE, links, pair

from bigbatch.scaling import ddp, horovod
from bigbatch.scaling.machine import AllReduceTimes, Jitter, MeasuredLinks
from bigbatch.scaling.profile import Layer
from bigbatch.scaling.simulation import StepSimulator, configure_engine
from bigbatch.scaling.step import SharedCores


def test_a_message_takes_its_cpu_time_from_computing():
    cores = SharedCores(PROFILE)
    # alone 400 µs, beside computing 800, in which computing loses 200: it runs at 3/4
    assert cores.add_message(500.0, 400.0, 800.0, 200.0) == 1300
    assert cores.time_of_progress(500.0) == 500
    assert cores.time_of_progress(500.0 + 300.0) == 900
    assert cores.time_of_progress(2100.0) == 2300
    assert [layer.backward_us for layer in cores.slowed_profile().layers] == [
        500,
        pytest.approx(900),
        pytest.approx(900),
    ]


def test_a_message_is_as_fast_as_alone_once_computing_is_over():
    cores = SharedCores(PROFILE)
    # 400 µs of computing are left at 1700; at 3/4 they take 533.3, in which two thirds of the message move
    end_us = cores.add_message(1700.0, 400.0, 800.0, 200.0)
    assert end_us == pytest.approx(1700 + 1600 / 3 + 400 / 3)
    assert cores.add_message(end_us, 400.0, 800.0, 200.0) == pytest.approx(end_us + 400)


def test_computing_never_stands_still():
    cores = SharedCores(PROFILE)
    assert cores.add_message(0.0, 100.0, 100.0, 300.0) == 100
    assert cores.time_of_progress(5.0) == pytest.approx(100)


def test_nothing_is_taken_where_nothing_is_shared():
    cores = SharedCores(PROFILE)
    assert cores.add_message(500.0, 400.0, 400.0, 0.0) == 900
    assert cores.slowed_profile() is PROFILE


def shared_links(**fields: Any) -> MeasuredLinks:
    """As `links`, where an all-reduce takes half of its time in CPU time from a rank that computes."""
    return MeasuredLinks(ranks=2, points=links().points, cpu_points=((0, 50.0), (1e6, 550.0)), **fields)


def test_ddp_on_shared_cores():
    # one bucket of c (800 kB: 900 µs) beside backward; the rest (700 kB: 800 µs) after it
    config = ddp.SimulatedDDP(bucket_mb=0.76, first_bucket_mb=0.76)
    plain = config.simulate_step(PROFILE, pair(), 2)
    shared = config.simulate_step(PROFILE, pair(links=shared_links()), 2)
    assert plain.step_us == pytest.approx(1000 + 2100 + 800 + 200)
    assert shared.step_us == pytest.approx(plain.step_us + 450)  # half of 900


def test_ddp_copies_every_gradient_into_its_bucket():
    # 1.5 MB at 2 GB/s are 750 µs of the backward pass; one bucket of 1.5 MB goes at the end
    step = ddp.SimulatedDDP(first_bucket_mb=25.0).simulate_step(PROFILE, pair(copy_gb_s=2.0), 2)
    assert step.step_us == pytest.approx(1000 + 2100 + 750 + 1600 + 200)
    assert [layer.backward_us for layer in step.profile.layers] == [900, 900, 1050]


def test_horovod_copies_what_it_fuses_to_and_fro():
    # a cycle of 10 ms finds all three tensors: 1.5 MB, 750 µs to the buffer and 750 back, on half of a core
    config = horovod.SimulatedHorovod(cycle_ms=10.0)
    plain, copied = (config.simulate_step(PROFILE, pair(**how), 2) for how in ({}, {"copy_gb_s": 2.0}))
    assert len(copied.messages) == 1
    assert copied.step_us == pytest.approx(plain.step_us + 3000)
    alone = horovod.SimulatedHorovod(cycle_ms=10.0, fusion_mb=0.0)  # each from where it is
    assert alone.simulate_step(PROFILE, pair(copy_gb_s=2.0), 2) == alone.simulate_step(PROFILE, pair(), 2)


def test_horovod_sends_at_its_own_speed():
    own = AllReduceTimes(points=((0, 100.0), (1e6, 2100.0)))
    slower = MeasuredLinks(ranks=2, points=links().points, horovod=own)
    config = horovod.SimulatedHorovod(cycle_ms=10.0)
    plain, slow = (config.simulate_step(PROFILE, pair(links=how), 2) for how in (links(), slower))
    assert slow.step_us == pytest.approx(plain.step_us + 1500)  # a microsecond a kilobyte more
    assert ddp.SimulatedDDP().simulate_step(PROFILE, pair(links=slower), 2).messages == (
        ddp.SimulatedDDP().simulate_step(PROFILE, pair(), 2).messages
    )


def test_horovods_messages_take_their_own_cpu_time_from_computing():
    # c (800 kB) goes from 1050 to 1950, all of it beside computing, and takes 80 µs. b (400 kB) goes from 2050 on, when
    # 130 µs of computing are left, and takes 40 of its 500: computing runs at .92
    taken = AllReduceTimes(points=links().points, cpu_points=((0, 0.0), (1e6, 100.0)))
    own, torchs = MeasuredLinks(ranks=2, points=links().points, horovod=taken), shared_links()
    config = horovod.SimulatedHorovod(fusion_mb=0.0)
    assert config.simulate_step(PROFILE, pair(links=own), 2).profile.backward_us == pytest.approx(2050 + 130 / 0.92)
    assert config.simulate_step(PROFILE, pair(links=torchs), 2).profile.backward_us > 2100 + 400
    # copies of what is fused are CPU time too. At 1300 b and c are ready, 1.2 MB: 600 µs to the buffer, 600 back, which
    # take 2400; the message 1300. Computing has 750 left at 1350 and runs at 1 - 1200 / 3700
    copied = horovod.SimulatedHorovod(cycle_ms=1.3).simulate_step(PROFILE, pair(copy_gb_s=2.0), 2)
    assert copied.profile.backward_us == pytest.approx(1350 + 750 / (1 - 1200 / 3700))


def test_contention_slows_computing_of_several_ranks_only():
    setting = StepSimulator(PROFILE, ddp.SimulatedDDP(first_bucket_mb=25.0), pair(contention=1.5))
    assert setting.step_us(1) == PROFILE.compute_us
    assert setting.step_us(2) == pytest.approx(1.5 * PROFILE.compute_us + 1600)  # one bucket of 1.5 MB at the end


@pytest.mark.parametrize("engine", ["ddp", "horovod"])
def test_what_computing_loses_on_shared_cores_is_not_exposed_communication(engine):
    machine = pair(links=shared_links(), contention=1.5, cycle_cost_us=100.0, blocking=True)
    setting = StepSimulator(PROFILE, configure_engine(engine, {}), machine)
    point, step = setting.scaling_point(2), setting.expected_step(2)
    assert step.profile.compute_us > 1.5 * PROFILE.compute_us
    assert point.exposed_us < point.step_us - 1.5 * PROFILE.compute_us
    if engine == "ddp":  # whose steps are all alike
        assert (
            point.exposed_us
            == step.exposed_us
            == pytest.approx(step.update_start_us - step.profile.forward_us - step.profile.backward_us)
        )


def test_what_sharing_cores_takes_is_a_term_of_its_own():
    # one bucket after the backward pass: 1.6 ms; computing takes half as long again
    setting = StepSimulator(PROFILE, ddp.SimulatedDDP(first_bucket_mb=25.0), pair(links=shared_links(), contention=1.5))
    point = setting.scaling_point(2)
    assert point.term_cost_us["sharing"] == pytest.approx(0.5 * PROFILE.compute_us)
    assert point.bottleneck == "sharing"
    assert pair(links=shared_links(), contention=1.5, cycle_cost_us=9.0).without_core_sharing() == pair()


def test_busy_points_hold_beside_computing_only():
    shared = MeasuredLinks(ranks=2, points=((0, 100.0), (1e6, 1100.0)), busy_points=((0, 200.0), (1e6, 2200.0)))
    config = ddp.SimulatedDDP(bucket_mb=0.76, first_bucket_mb=0.76)
    first, last = config.simulate_step(PROFILE, pair(links=shared), 2).messages
    # 1800 µs from 500 on, of which 1600 are beside computing: the last ninth of it goes at twice that speed
    assert first.end_us - first.start_us == pytest.approx(1600 + 100)
    assert last.end_us - last.start_us == pytest.approx(100 + 0.7 * 1000)


def test_steps_fall_into_step_with_long_cycles():
    """A step of 3.4 ms and more ends with a cycle's message: with cycles of 10 ms one begins every 10."""
    config = horovod.SimulatedHorovod(cycle_ms=10.0)
    machine = pair(blocking=True)
    assert StepSimulator(PROFILE, config, machine).step_us(2) == pytest.approx(10_000)
    # a little jitter does not get them out of it
    jittery = machine.model_copy(update={"jitter": Jitter(fraction=0.1)})
    assert StepSimulator(PROFILE, config, jittery).step_us(2) == pytest.approx(10_000)


def test_steps_follow_each_other_as_they_fall():
    """One step after the other by hand, a single message in each: a step that is late waits for the next cycle."""
    whole = replace(PROFILE, layers=(Layer("all", 2100.0, (1_500_000,)),))
    config, machine = horovod.SimulatedHorovod(cycle_ms=5.0), pair(blocking=True)
    # 3.1 ms to the gradient, times 1 and 1.5; .05 to agree, 1.6 to send; .2 to update, times 1 and 1.5
    # begins at 0: cycle 5, ends 6.85. Ready at 11.5: cycle 15, ends 16.95. Ready at 20.05: cycle 25, ends 26.85
    # ready at 31.5: cycle 35, ends 36.95: and so on, 9.9 and 10.1 in turn
    steps = config.simulate_steps(whole, (1.0, 1.5), machine, 2)
    assert [step.step_us for step in steps] == pytest.approx([9900, 10_100] * 4)
    # 1.2 times: ready at 10.57, cycle 15, ends 16.89, so that the next one is ready at 19.99, just in time for 20
    steps = config.simulate_steps(whole, (1.0, 1.2), machine, 2)
    assert [step.step_us for step in steps] == pytest.approx([4960, 10_040] * 4)


def test_a_step_with_a_longer_forward_pass_meets_the_same_cycles():
    """Cycles do not know of steps: at 9 and 18 ms whether the backward pass has begun or not."""
    config, machine = horovod.SimulatedHorovod(cycle_ms=9.0), pair(blocking=True)
    # ends at 9 + 1.65 + .2·factor; the next one, twice as long, is ready 6.2 ms later, before 18
    first, second = (
        config.simulate_step(PROFILE.scale_times(factor), machine, 2, first_cycle_us=start_us)
        for factor, start_us in ((1.0, 9000.0), (2.0, 18_000.0 - 10_850.0))
    )
    assert first.step_us == pytest.approx(10_850)
    assert first.profile.forward_us + first.next_cycle_us == pytest.approx(18_000)
    assert second.step_us == pytest.approx(7150 + 1650 + 400)


def test_cycles_take_from_computing_as_often_as_they_come():
    """100 µs each: a tenth of every cycle of 1 ms, a hundredth of every one of 10 ms."""
    machine = pair(cycle_cost_us=100.0)
    often, seldom = (
        horovod.SimulatedHorovod(cycle_ms=cycle_ms).simulate_step(PROFILE, machine, 2) for cycle_ms in (1.0, 10.0)
    )
    assert often.profile.compute_us == pytest.approx(PROFILE.compute_us / 0.9)
    assert seldom.profile.compute_us == pytest.approx(PROFILE.compute_us / 0.99)


def test_statistics_are_summed_after_the_gradients():
    """50 kB: 150 µs of their own for DDP; Horovod waits for its next cycle and agrees on them first."""
    normalised = replace(PROFILE, statistics_bytes=50_000)
    config = ddp.SimulatedDDP(first_bucket_mb=25.0)
    plain, more = (config.simulate_step(profile, pair(), 2).step_us for profile in (PROFILE, normalised))
    assert more == pytest.approx(plain + 150)
    # gradients: a cycle at 3 ms, 50 µs, 1.5 MB: over at 4650; statistics with the next cycle, at 6 ms
    step = horovod.SimulatedHorovod(cycle_ms=3.0).simulate_step(normalised, pair(), 2)
    assert [one.end_us for one in step.messages] == pytest.approx([4650, 6000 + 50 + 150])
