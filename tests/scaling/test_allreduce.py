"""What an all-reduce costs, by hand from the formulas of NCCL's tuner."""

from __future__ import annotations

import pytest
from hand import HERE, PASCAL, SUMMIT, pair

from bigbatch.scaling.allreduce import AllReduceCosts, Cost
from bigbatch.scaling.machine import Machine


def cost(size_bytes: float, ranks: int, machine: Machine, zero_cost: tuple[str, ...] = ()) -> Cost:
    return AllReduceCosts(ranks, machine, zero_cost=zero_cost).alone(size_bytes)


def summit(algorithms: str, **links: float) -> Machine:
    return SUMMIT.with_settings({"links.algorithms": algorithms} | {f"links.{k}": v for k, v in links.items()})


def test_one_rank_sends_nothing():
    for machine in (SUMMIT, PASCAL, HERE):
        assert cost(1e9, 1, machine).us == 0


def test_a_ring_over_two_nodes():
    # 12 ranks on 2 nodes: 8.4 + (22 − 2)·3.4 + 2·14 = 104.4; 2·11/12 · 23 MB / 23 GB/s = 1833.33
    found = cost(23e6, 12, summit("ring"))
    assert found.algorithm == "ring Simple"
    assert found.latency_us == pytest.approx(104.4)
    assert found.transfer_us == pytest.approx(1833.333, abs=1e-3)


def test_a_small_ring_takes_the_protocol_with_the_small_latency():
    # LL: 6.6 + 20·0.6 + 2·2.7 = 24; 2·11/12 · 2300 B at a quarter of 23 GB/s = 0.7333
    found = cost(2300, 12, summit("ring"))
    assert found.algorithm == "ring LL"
    assert found.us == pytest.approx(24.7333, abs=1e-4)


def test_a_tree_over_eight_nodes():
    # 48 ranks on 8 nodes: 8.4 + 2·(5·4 + 3·14) = 132.4; 2 · 20.7 MB / (0.9 · 23 GB/s) = 2000
    found = cost(20.7e6, 48, summit("tree"))
    assert found.algorithm == "tree Simple"
    assert found.latency_us == pytest.approx(132.4)
    assert found.transfer_us == pytest.approx(2000)


def test_within_a_node_only_its_own_links_count():
    # 6 ranks: 8.4 + 10·3.4 = 42.4; 2·5/6 · 30 MB / 50 GB/s = 1000
    found = cost(30e6, 6, summit("ring"))
    assert found.us == pytest.approx(1042.4)
    assert cost(30e6, 6, summit("ring", between_gb_s=0.001)) == found


def test_pcie_has_its_own_latency():
    # 512 ranks on 128 nodes: 8.4 + (1022 − 254)·5.7 + 254·14 = 7942; NVLink would give 6175.6
    assert cost(500e6, 512, PASCAL).latency_us == pytest.approx(7942.0)


def test_the_faster_of_ring_and_tree_is_taken():
    # 6144 ranks on 1024 nodes, LL ring: 6.6 + (12286 − 2046)·0.6 + 2046·2.7 = 11674.8; tree: 8.4 + 2·(5·4 + 10·14)
    few, many = cost(100e6, 12, summit("auto")), cost(100e6, 6144, summit("auto"))
    assert few.algorithm == "ring Simple"
    assert many.algorithm == "tree Simple"
    assert many.latency_us == pytest.approx(328.4)
    assert cost(100e6, 6144, summit("ring")).latency_us == pytest.approx(11674.8)


def test_measured_points_are_joined_by_lines():
    # findings on gloo: 268 µs, 1.09 GB/s to 16 MB, 0.78 GB/s at 64 MB
    assert cost(0, 2, HERE).us == pytest.approx(268)
    assert cost(8e6, 2, HERE).us == pytest.approx(268 + 8e6 / 1090)
    assert cost(64e6, 2, HERE).us == pytest.approx(268 + 64e6 / 780)
    halfway = (cost(16e6, 2, HERE).us + cost(64e6, 2, HERE).us) / 2
    assert cost(40e6, 2, HERE).us == pytest.approx(halfway)
    # beyond the last point with its slope: 48 MB more cost what the last 48 MB did
    assert cost(112e6, 2, HERE).us - cost(64e6, 2, HERE).us == pytest.approx(2 * (halfway - cost(16e6, 2, HERE).us))


def test_measured_points_go_to_other_numbers_of_ranks_as_a_ring_does():
    # 4 ranks: 3 times the steps of 2; (3/4)/(1/2) = 1.5 times the bytes
    two, four = cost(1e6, 2, pair()), cost(1e6, 4, pair())
    assert (two.latency_us, two.transfer_us) == pytest.approx((100, 1000))
    assert (four.latency_us, four.transfer_us) == pytest.approx((300, 1500))


@pytest.mark.parametrize("algorithms", ["ring", "tree", "auto"])
def test_more_bandwidth_is_never_slower(algorithms):
    for ranks in (2, 6, 12, 96, 1536, 27648):
        for size in (1e3, 1e5, 1e7, 1e9):
            times = [cost(size, ranks, summit(algorithms, between_gb_s=speed)).us for speed in (1, 5, 23, 100)]
            assert times == sorted(times, reverse=True)


def test_a_free_term_leaves_the_other_as_it_is():
    full = cost(1e6, 96, SUMMIT)
    assert cost(1e6, 96, SUMMIT, zero_cost=("latency",)) == full._replace(latency_us=0.0)
    assert cost(1e6, 96, SUMMIT, zero_cost=("transfer",)) == full._replace(transfer_us=0.0)
