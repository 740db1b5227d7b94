"""DDP's buckets: against torch's own, and a step computed by hand to the microsecond."""

from __future__ import annotations

import torch
import torch.distributed as dist
from hand import PROFILE, links, pair

from bigbatch.scaling import ddp
from bigbatch.scaling.workload import imagenet_layers

MIB = 2**20


def test_three_layers_two_buckets_to_the_microsecond():
    # forward 0 .. 1000; c to 1500, b to 2200, a to 3100
    # the first bucket closes with b: 800,000 + 400,000 >= 1,048,576. Sent at 2200: 100 + 1200 -> 3500
    # the second has a alone, full at 3100, waits for the stream until 3500: 100 + 300 -> 3900
    # update 200 -> 4100
    step = ddp.SimulatedDDP().simulate_step(PROFILE, pair(), 2)
    sent = [(bar.start_us, bar.end_us, bar.bytes) for bar in step.phases().bars if bar.stream == "communication"]
    assert sent == [(2200.0, 3500.0, 1_200_000), (3500.0, 3900.0, 300_000)]
    assert step.step_us == 4100.0
    assert step.exposed_us == 800.0
    computed = [(bar.label, bar.start_us, bar.end_us) for bar in step.phases().bars if bar.stream == "compute"]
    assert computed == [
        ("forward", 0.0, 1000.0), ("c", 1000.0, 1500.0), ("b", 1500.0, 2200.0), ("a", 2200.0, 3100.0),
        ("update", 3900.0, 4100.0),
    ]  # fmt: skip


def test_smaller_buckets_start_earlier_and_pay_more_latency():
    # 0.5 MiB each: c alone (800,000), b alone is 400,000 < 524,288 and waits for a: 700,000
    # c: 1500 .. 2400; b and a: 3100 .. 3900. The same end here: the last layer decides
    step = ddp.SimulatedDDP(bucket_mb=0.5).simulate_step(PROFILE, pair(), 2)
    assert [bar.end_us for bar in step.phases().bars if bar.stream == "communication"] == [2400.0, 3900.0]
    # 0.3 MiB: three of them. c 1500 .. 2400, b 2400 .. 2900, a 3100 .. 3500; update -> 3700
    step = ddp.SimulatedDDP(bucket_mb=0.3).simulate_step(PROFILE, pair(), 2)
    assert step.step_us == 3700.0


def test_one_rank_has_no_communication():
    step = ddp.SimulatedDDP().simulate_step(PROFILE, pair(), 1)
    assert step.step_us == PROFILE.compute_us == 3300.0
    assert {bar.stream for bar in step.phases().bars} == {"compute"}


def test_buckets_are_torchs():
    arriving = [size for shape in reversed(imagenet_layers("resnet", 50)) for size in shape.gradient_bytes]
    with torch.device("meta"):
        tensors = [torch.empty(size // 4) for size in arriving]
    for config in (ddp.SimulatedDDP(), ddp.SimulatedDDP(bucket_mb=4), ddp.SimulatedDDP(bucket_mb=0.5)):
        limits = [int(limit) for limit in config.bucket_limits_bytes]
        theirs, _ = dist._compute_bucket_assignment_by_size(tensors, limits)
        assert ddp.assign_buckets(arriving, *limits) == theirs


def test_a_cap_of_ones_own_holds_for_torchs_first_bucket_too():
    assert ddp.SimulatedDDP().bucket_limits_bytes == (MIB, 25 * MIB)
    assert ddp.SimulatedDDP(bucket_mb=4).bucket_limits_bytes == (4 * MIB, 4 * MIB)
    assert ddp.SimulatedDDP(bucket_mb=4, first_bucket_mb=2).bucket_limits_bytes == (2 * MIB, 4 * MIB)


def test_faster_links_are_never_slower():
    times = [
        ddp.SimulatedDDP().simulate_step(PROFILE, pair(links=links(us_per_megabyte)), 2).step_us
        for us_per_megabyte in (3000, 1000, 300, 0.1)
    ]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]
