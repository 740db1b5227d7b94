"""What a sweep saves on small runs: CPU seconds of `bigbatch train`, run by run, over those of one `bigbatch sweep`.

The sweep forks its runs from one process that has imported torch and the rest. At 12 runs of a second, at least 2.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from bigbatch.recipes import load_run
from bigbatch.sweeps import SweepConfig

RUNS = 12


def cpu_seconds(*arguments: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-m", "bigbatch", *arguments], env=environment, check=True, capture_output=True, timeout=600
    )
    with suppress(ChildProcessError):
        while True:  # the fork server outlives the command, and its time counts once it is waited for
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def adopt_orphans() -> None:
    """Become the parent of processes that outlive theirs (Linux), so that their CPU time is counted."""
    PR_SET_CHILD_SUBREAPER = 36
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def main() -> None:
    adopt_orphans()
    settings = ["model=mlp", "epochs=2", "micro_batch=64"]
    run = load_run("digits", settings)
    with tempfile.TemporaryDirectory() as folder:
        points = SweepConfig.build(run, grids={"global_batch": (64, 256)}, seeds=RUNS // 2).points()
        options = [argument for setting in settings for argument in ("--set", setting)]
        swept = cpu_seconds(
            *("sweep", "digits", *options, "--grid", "global_batch=64,256", "--seeds", str(RUNS // 2)),
            *("--out", f"{folder}/sweep", "--jobs", "2", "--quiet"),
        )
        alone = 0.0
        for point in points:
            path = Path(folder) / f"{point.hash}.json"
            path.write_text(point.run.to_json(), encoding="utf-8")
            alone += cpu_seconds("train", str(path), "--runs-dir", f"{folder}/alone", "--quiet")
        same = all(
            (Path(folder) / "sweep" / "runs" / point.folder_name / "metrics.jsonl").exists()
            and (Path(folder) / "alone" / point.folder_name / "metrics.jsonl").exists()
            for point in points
        )
    assert same, "both have to train every run"
    print(f"{RUNS} runs one by one {alone:.1f} CPU s, as a sweep {swept:.1f} CPU s: ratio {alone / swept:.2f}")


if __name__ == "__main__":
    main()
