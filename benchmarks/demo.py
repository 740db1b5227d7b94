"""How long does the demo take, and how much of the lost accuracy does LEGW win back in it?

    python benchmarks/demo.py

Runs the whole demo in a fresh folder, with nothing cached. On a busy machine the wall time says little: CPU seconds
over the cores at hand are what a quiet one would need at least.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from pathlib import Path

from bigbatch import demo
from bigbatch.demo.measured import shares_by_seed, won_back
from bigbatch.demo.stations import LEGW, LEGW_LARS
from bigbatch.demo.workers import available_cores

MOST_SECONDS = 90  # on 2 cores
LEAST_WON_BACK = 0.9


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        started = time.monotonic()
        found = demo.show(Path(folder) / "runs", Path(folder) / "demo.html", quiet=False)
        wall = time.monotonic() - started
    cores, used = available_cores(), cpu_seconds()
    print(
        f"\n{wall:.0f} s wall, {used:.0f} CPU s over {cores} cores: at least {used / cores:.0f} s (bar: {MOST_SECONDS})"
    )
    for name in (LEGW, LEGW_LARS):
        share = won_back(found, name)
        by_seed = ", ".join(f"{100 * one:.0f}" for one in shares_by_seed(found, name))
        won = "nothing was lost" if share is None else f"{100 * share:.1f} % (by seed {by_seed})"
        print(f"won back by {name.removeprefix('+ ')}: {won} (bar: {100 * LEAST_WON_BACK:.0f} %)")


if __name__ == "__main__":
    main()
