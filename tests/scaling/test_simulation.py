"""Curves over ranks: the band, what a term is worth, and the mechanisms that bend Horovod."""

from __future__ import annotations

import pytest
from hand import PROFILE, SUMMIT, V100, pair

from bigbatch.scaling.profile import Profile
from bigbatch.scaling.simulation import ENGINES, StepSimulator, configure_engine, rank_counts, simulate
from bigbatch.scaling.workload import imagenet_layers


@pytest.fixture(scope="module")
def resnet() -> Profile:
    return V100.profile("resnet", imagenet_layers("resnet", 50), 64)


def setting(profile: Profile, engine: str, machine: object = SUMMIT, **options: object) -> StepSimulator:
    return StepSimulator(profile, configure_engine(engine, options), machine)  # type: ignore[arg-type]


def test_a_point_by_hand():
    # the step of test_ddp: 4100 where one rank takes 3300, and no jitter
    point = setting(PROFILE, "ddp", pair()).scaling_point(2)
    assert point.efficiency == pytest.approx(3300 / 4100)
    assert (point.low, point.high) == (point.efficiency, point.efficiency)
    assert point.exposed_us == 800
    # without latency: 2200 .. 3400, 3400 .. 3700; without transfer: 2200 .. 2300, 3100 .. 3200
    assert point.term_cost_us == {"jitter": 0, "latency": 200, "transfer": 700, "negotiation": 0, "sharing": 0}
    assert point.bottleneck == "transfer"


def test_jitter_slows_compute_and_widens_the_band():
    # 10 %, 2 ranks: H_2 − 1 = 1/2, so 1.05 times; forward 1050, backward 2205 -> 3255, update 210
    # bucket 1 at 1050 + 1260 = 2310 .. 3610, bucket 2 .. 4010; 4220
    machine = pair(jitter={"fraction": 0.1})
    point = setting(PROFILE, "ddp", machine).scaling_point(2)
    assert point.step_us == pytest.approx(4220)
    assert point.term_cost_us["jitter"] == pytest.approx(120)
    assert point.low < point.efficiency < point.high


@pytest.mark.parametrize("engine", ENGINES)
def test_one_rank_is_fully_efficient(engine, resnet):
    point = setting(resnet, engine).scaling_point(1)
    assert point.efficiency == 1
    assert point.exposed_us == 0
    assert point.all_reduces == 0
    assert point.bottleneck == "nothing"


@pytest.mark.parametrize("engine", ENGINES)
def test_more_bandwidth_is_never_slower(engine, resnet):
    steps = [
        setting(resnet, engine, SUMMIT.with_settings({"links.between_gb_s": speed})).step_us(1536)
        for speed in (1, 5, 23, 50)
    ]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > 1.1 * steps[-1]


def test_with_trees_and_cache_neither_engine_bends(resnet):
    for engine in ENGINES:
        assert setting(resnet, engine).efficiency(1536) > 0.85


def test_rings_bend_horovod_near_a_thousand_ranks_by_latency(resnet):
    rings = SUMMIT.with_settings({"links.algorithms": "ring"})
    many = setting(resnet, "horovod", rings)
    assert many.efficiency(384) > 0.88
    point = many.scaling_point(1536)
    assert point.efficiency < 0.7 < setting(resnet, "ddp", rings).efficiency(1536)
    assert point.bottleneck == "latency"
    assert point.all_reduces > 10 * setting(resnet, "ddp", rings).scaling_point(1536).all_reduces


def test_a_missing_cache_bends_horovod_by_negotiation(resnet):
    uncached = setting(resnet, "horovod", cache_capacity=0)
    assert uncached.efficiency(384) > 0.88
    assert uncached.scaling_point(3072).bottleneck == "negotiation"
    assert uncached.efficiency(3072) < 0.5


def test_counts_are_whole_nodes_from_1_to_the_end():
    assert rank_counts(1, 10, 6) == [1]
    assert rank_counts(6144, 1, 6) == [6144]
    assert rank_counts(4, 100, 6) == [1, 2, 3, 4]
    found = rank_counts(100_000, 100, 6)
    assert (found[0], found[-1]) == (1, 100_000)
    assert len(found) == 100
    assert all(count % 6 == 0 for count in found[:-1] if count > 6)


def test_a_curve_has_a_point_for_each_number_of_ranks():
    found = simulate(PROFILE, [configure_engine("ddp", {})], pair(), [1, 2, 4]).curves
    assert [point.ranks for point in found["ddp"]] == [1, 2, 4]
