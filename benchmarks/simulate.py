"""CPU seconds for 100 numbers of ranks up to 100,000 with both simulated engines. The bar is a minute.

    python benchmarks/simulate.py [--points 100] [--to 100000]

ResNet-50 on Summit at batch 64 a rank, with the band and with what every term is worth: seven steps a point for DDP,
and eight times as many for Horovod, whose cycle may begin anywhere.
"""

from __future__ import annotations

import argparse
import time

from bigbatch.scaling.machine import SUMMIT, V100
from bigbatch.scaling.simulation import configure_engine, counts, curve
from bigbatch.scaling.workload import imagenet_layers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--to", type=int, default=100_000)
    options = parser.parse_args()
    profile = V100.profile("resnet", imagenet_layers("resnet", 50), 64)
    ranks = counts(options.to, options.points, SUMMIT.ranks_per_node)
    total = 0.0
    for engine in ("ddp", "horovod"):
        started = time.process_time()
        points = curve(profile, {engine: configure_engine(engine, {})}, SUMMIT, ranks)[engine]
        total += time.process_time() - started
        print(f"{engine:8} {len(points)} points  {time.process_time() - started:6.2f} CPU s")
    print(f"both: {total:.1f} CPU seconds of the 60 that are allowed")


if __name__ == "__main__":
    main()
