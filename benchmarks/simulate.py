"""CPU seconds for 100 numbers of ranks up to 100,000 with both simulated engines. The bar is a minute.

    python benchmarks/simulate.py [--points 100] [--to 100000]

ResNet-50 on Summit at batch 64 per rank, with the band and with the cost of every term: seven steps per point for DDP,
and eight times as many for Horovod, whose cycle may begin anywhere.
"""

from __future__ import annotations

import argparse
import time

from bigbatch.scaling.machine import find_machine
from bigbatch.scaling.simulation import configure_engine, rank_counts, simulate
from bigbatch.scaling.workload import imagenet_layers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--to", type=int, default=100_000)
    options = parser.parse_args()
    summit = find_machine("summit")
    assert summit.device is not None
    profile = summit.device.profile("resnet", imagenet_layers("resnet", 50), 64)
    ranks = rank_counts(options.to, options.points, summit.ranks_per_node)
    total = 0.0
    for engine in ("ddp", "horovod"):
        started = time.process_time()
        points = simulate(profile, [configure_engine(engine, {})], summit, ranks).curves[engine]
        total += time.process_time() - started
        print(f"{engine:8} {len(points)} points  {time.process_time() - started:6.2f} CPU s")
    print(f"both: {total:.1f} CPU seconds of at most 60")


if __name__ == "__main__":
    main()
