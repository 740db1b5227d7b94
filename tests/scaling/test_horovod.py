"""Horovod's cycles, fusion and negotiation by hand. Gradients are ready 500, 1200 and 2100 µs into backward."""

from __future__ import annotations

from typing import Any

import pytest
from hand import PROFILE, links, pair

from bigbatch.scaling import horovod
from bigbatch.scaling.horovod import SimulatedHorovod
from bigbatch.scaling.machine import Device
from bigbatch.scaling.profile import Gradient
from bigbatch.scaling.step import SimulatedStep


def sent(step: SimulatedStep) -> list[tuple[float, float]]:
    """Counted from the start of the backward pass."""
    return [(bar.start_us - 1000, bar.end_us - 1000) for bar in step.phases().bars if bar.stream == "communication"]


def simulate(machine: Any = None, ranks: int = 2, **options: Any) -> SimulatedStep:
    return SimulatedHorovod(**options).simulate_step(PROFILE, machine or pair(), ranks)


def test_every_cycle_sends_what_is_ready():
    # cycles at 0, 1000, 2000, 3000; a bit vector over 2 ranks takes one message of 50
    # 1050: 800,000 B in 900; 2050: 400,000 in 500; 3050: 300,000 in 400. Update: 1000 + 3450 + 200
    step = simulate()
    assert sent(step) == [(1050.0, 1950.0), (2050.0, 2550.0), (3050.0, 3450.0)]
    assert step.step_us == 4650.0
    asked = [(bar.start_us - 1000, bar.end_us - 1000) for bar in step.phases().bars if bar.stream == "negotiation"]
    assert asked == [(1000.0, 1050.0), (2000.0, 2050.0), (3000.0, 3050.0)]


def test_a_longer_cycle_fuses_what_came_in_it():
    # at 2500 all three are ready: 1,500,000 B in 1600
    assert sent(simulate(cycle_ms=2.5)) == [(2550.0, 4150.0)]


def test_a_buffer_holds_no_more_than_the_threshold():
    # 800,000 | 400,000 + 300,000 within 1 MiB: 900, then 800
    assert sent(simulate(cycle_ms=2.5, fusion_mb=1)) == [(2550.0, 3450.0), (3450.0, 4250.0)]
    assert [len(buffer) for buffer in horovod.fuse_gradients([Gradient("", 10, 0)] * 5, 20)] == [2, 2, 1]
    assert [len(buffer) for buffer in horovod.fuse_gradients([Gradient("", 10, 0)] * 3, 0)] == [1, 1, 1]


def test_fusion_costs_two_copies_on_a_device():
    # in and out, each read and written: 4 · 1,500,000 B / 1000 GB/s = 6 µs
    device = Device(name="d", peak_tflops=1, memory_gb_s=1000, efficiency=1)
    assert sent(simulate(pair(device=device), cycle_ms=2.5)) == [(2550.0, 4156.0)]


def test_without_the_cache_rank_0_reads_every_request():
    # 4 collectives of 50, and 2 ranks · 1 request · 10 µs = 220 a cycle
    assert sent(simulate(cache_capacity=0, request_us=10)) == [(1220.0, 2120.0), (2220.0, 2720.0), (3220.0, 3620.0)]
    # 1024 ranks, 3 requests at 1 µs: 4 · 10 · 50 + 3072
    assert SimulatedHorovod().negotiation_us(3, False, pair(), 1024) == pytest.approx(5072)
    assert SimulatedHorovod().negotiation_us(3, True, pair(), 1024) == pytest.approx(500)


def test_a_cache_that_is_too_small_holds_nothing_of_a_step():
    assert simulate(cache_capacity=2, request_us=10) == simulate(cache_capacity=0, request_us=10)
    assert simulate(cache_capacity=3) == simulate(cache_capacity=1024)


def test_gloo_keeps_the_thread_while_it_sends():
    # 2 µs a kB. NCCL: 1050 .. 2750, then 400,000 B (900) and 300,000 B (700) one after the other
    # gloo: the next cycle begins at 2750, when both are ready: 700,000 B in 1500
    slow = links(2000)
    assert sent(simulate(pair(links=slow))) == [(1050.0, 2750.0), (2750.0, 3650.0), (3650.0, 4350.0)]
    assert sent(simulate(pair(links=slow, blocking=True))) == [(1050.0, 2750.0), (2800.0, 4300.0)]


def test_a_cycle_may_begin_anywhere():
    # half a cycle later: 500 (c is just ready), 1500, 2500 µs into a backward pass that begins after 1000
    step = SimulatedHorovod().simulate_step(PROFILE, pair(), 2, first_cycle_us=500.0)
    assert sent(step) == [(550.0, 1450.0), (1550.0, 2050.0), (2550.0, 2950.0)]


def test_a_negotiation_longer_than_a_cycle_sets_the_pace():
    # 700 µs a question, cycles of 0.5 ms: at 700, 1400, 2100
    assert sent(simulate(pair(control_us=700.0), cycle_ms=0.5)) == [
        (1400.0, 2300.0),
        (2300.0, 2800.0),
        (2800.0, 3200.0),
    ]


def test_one_rank_has_no_communication():
    step = simulate(ranks=1)
    assert step.step_us == PROFILE.compute_us
    assert step.messages == ()
