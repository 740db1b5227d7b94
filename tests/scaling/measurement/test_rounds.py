"""Rounds of real ranks, on this machine and over two network namespaces."""

from __future__ import annotations

import namespaces
import pytest

from bigbatch.scaling import hosts
from bigbatch.scaling.measurement.measurement import group_rounds
from bigbatch.scaling.measurement.request import StepCounts
from bigbatch.scaling.measurement.rounds import MeasuredRound, measure_round, rotate
from bigbatch.scaling.workload import EngineConfiguration, Workload

TINY = Workload("mlp", {"hidden": (16, 16)}, (1, 8, 8), 10)
HOROVOD = EngineConfiguration("horovod", 2, 4)
PAIR = EngineConfiguration("ddp", 2, 4)
FEW = StepCounts(rounds=1, warmup_steps=2, timed_steps=4, recorded_steps=2)


def least_exposed_us(found: MeasuredRound) -> float:
    return min(step.exposed_us for rank in found.ranks for step in rank.steps)


@pytest.fixture(scope="module")
def here():
    """One process and two ranks of this machine."""
    return group_rounds([measure_round(TINY, one, FEW) for one in (EngineConfiguration("local", 1, 4), PAIR)])


def test_two_real_ranks_and_one_process_are_measured(here):
    alone, pair = here[EngineConfiguration("local", 1, 4)], here[PAIR]
    assert [len(timing.best.ranks) for timing in (alone, pair)] == [1, 2]
    assert [len(rank.wall_s) for rank in pair.best.ranks] == [4, 4]
    # 64·16+16, 16·16+16, 16·10+10: what travels is every gradient, once
    assert sum(pair.phases.message_bytes) == sum(pair.best.ranks[0].bucket_bytes) == 4 * (1040 + 272 + 170)
    assert alone.phases.message_bytes == ()
    assert all(step.exposed_us > 0 for rank in pair.best.ranks for step in rank.steps)


@namespaces.needs(namespaces.NARROW)
def test_a_narrow_link_between_two_hosts_shows_as_exposed_communication(here):
    with namespaces.joined(namespaces.NARROW) as names:
        apart = measure_round(TINY, PAIR, FEW, hosts.parse_hosts(names))
    # 6 kB at 400 kbit/s: some 100 ms
    assert least_exposed_us(apart) > 5 * least_exposed_us(here[PAIR].best)


@namespaces.needs(namespaces.FAR)
def test_a_long_way_between_two_hosts_shows_as_exposed_communication(here):
    with namespaces.joined(namespaces.FAR) as names:
        apart = measure_round(TINY, PAIR, FEW, hosts.parse_hosts(names))
    assert least_exposed_us(apart) > 5 * least_exposed_us(here[PAIR].best)


@pytest.mark.horovod
def test_horovods_timeline_tells_what_was_sent_and_how_long_it_was_agreed_on():
    found = measure_round(TINY, HOROVOD, FEW, with_timeline=True)
    for step in found.ranks[0].steps:
        assert sum(one.bytes for one in step.messages) == 4 * (1040 + 272 + 170)
        assert step.negotiation_us > 0
        assert all(0 < one.start_us < one.end_us for one in step.messages)
        assert step.overlapped_us is not None
    phases = group_rounds([found])[HOROVOD].phases
    assert phases.exposed_us > 0


@namespaces.needs(namespaces.WIDE)
def test_where_a_port_is_in_use_another_one_is_taken(monkeypatch):
    ports = iter([23_456, 23_457])
    monkeypatch.setattr(hosts.random, "randint", lambda *_: next(ports))
    with namespaces.joined(namespaces.WIDE) as names, namespaces.taken(names.partition(",")[0], 23_456):
        found = measure_round(TINY, PAIR, FEW, hosts.parse_hosts(names))
    assert [rank.rank for rank in found.ranks] == [0, 1]
    assert list(ports) == []


def test_every_configuration_leads_a_round_in_turn():
    listed = [EngineConfiguration("local", 1, 4), PAIR, EngineConfiguration("fsdp", 2, 8)]
    assert [rotate(listed, number)[0] for number in range(4)] == [*listed, EngineConfiguration("local", 1, 4)]
    assert all(set(rotate(listed, number)) == set(listed) for number in range(4))
