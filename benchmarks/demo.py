"""How long does the demo take, and how much of the lost accuracy does LEGW win back in it?

    python benchmarks/demo.py

Runs the whole demo in a new folder, with nothing cached. On a busy machine the wall time says little: CPU seconds
divided by the number of cores are a lower bound of the time on an idle one.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from multiprocessing import forkserver
from pathlib import Path

from bigbatch.commands.demo import print_report
from bigbatch.demo import DemoOptions, run_demo
from bigbatch.demo.page import build_page
from bigbatch.demo.run import LEGW, LEGW_LARS, describe_gain, fractions_won_back

MOST_SECONDS = 90  # on 2 cores
LEAST_WON_BACK = 0.9


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the trainings, which are children of the fork server."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # a process counts once it is waited for
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        start = time.monotonic()
        report = run_demo(DemoOptions(Path(folder) / "runs", quiet=False))
        build_page(report).write(Path(folder) / "demo.html")
        wall = time.monotonic() - start
    print_report(report)
    cores, used = len(os.sched_getaffinity(0)), cpu_seconds()
    print(
        f"\n{wall:.0f} s wall, {used:.0f} CPU s on {cores} cores: at least {used / cores:.0f} s (bar: {MOST_SECONDS})"
    )
    for variant in (LEGW, LEGW_LARS):
        fraction = fractions_won_back(report.comparison, variant)[0]
        passed = fraction is not None and fraction >= LEAST_WON_BACK
        print(
            f"{'pass' if passed else 'FAIL'} (bar: {LEAST_WON_BACK:.0%}): {describe_gain(report.comparison, variant)}"
        )


if __name__ == "__main__":
    main()
