"""The fastest micro-batch that fits, found by timing a few: the largest is often not it.

The choice changes nothing but rounding and speed. It is remembered for a machine, model and batch, so that two runs
of one seed are the same to the bit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

import torch

from bigbatch.artifacts import atomic
from bigbatch.errors import Problem

_SMALLEST = 8
_ROUNDS = 3  # the least of these is taken: other processes only ever add time
_SECONDS = 20.0  # for all timing; what a slow model has not tried by then stays untried
_HOPELESS = 1.3  # times the best: not worth another look


def choose(local_batch: int, seconds_for: Callable[[int], float]) -> int:
    """The micro-batch with the least time per sample. `seconds_for(n)` runs forward and backward on n samples."""
    started = time.perf_counter()
    per_sample: dict[int, float] = {}
    slower_in_a_row = 0
    grown_bytes = 0
    for candidate in _ladder(local_batch):
        # activations grow with the micro-batch: the next rung about doubles what the last one added
        if 2 * grown_bytes > 0.9 * available_bytes() or time.perf_counter() - started > _SECONDS:
            break
        held_bytes = peak_rss_bytes()
        try:
            seconds_for(candidate)  # first touch: allocations and kernel choice
            per_sample[candidate] = seconds_for(candidate) / candidate
        except torch.OutOfMemoryError:
            break
        grown_bytes = max(grown_bytes, peak_rss_bytes() - held_bytes)
        slower = per_sample[candidate] > _HOPELESS * min(per_sample.values())
        slower_in_a_row = slower_in_a_row + 1 if slower else 0
        if slower_in_a_row == 2:
            break
    for _ in range(_ROUNDS - 1):
        near = [c for c, seconds in per_sample.items() if seconds < _HOPELESS * min(per_sample.values())]
        for candidate in near:
            if time.perf_counter() - started < _SECONDS:
                per_sample[candidate] = min(per_sample[candidate], seconds_for(candidate) / candidate)
    return min(per_sample, key=per_sample.__getitem__) if per_sample else min(local_batch, _SMALLEST)


def remembered(key: dict[str, object], find: Callable[[], int]) -> int:
    """What was chosen for this key on this machine before; else what `find` chooses now."""
    path = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bigbatch" / "micro_batch"
    entry = path / hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()[:16]
    try:
        return int(entry.read_text())
    except (OSError, ValueError):
        found = find()
    with contextlib.suppress(Problem):  # a read-only home costs the next run a few seconds, nothing else
        atomic.write_text(entry, str(found))
    return found


def _ladder(local_batch: int) -> list[int]:
    """8, 16, 32 ... and the whole batch."""
    rungs = []
    rung = min(_SMALLEST, local_batch)
    while rung < local_batch:
        rungs.append(rung)
        rung *= 2
    return [*rungs, local_batch]


def available_bytes() -> float:
    """Main memory that is free for this process: the machine's, or what a container is allowed if that is less."""
    found = [float("inf")]
    try:
        with open("/proc/meminfo", encoding="utf-8") as lines:
            found.append(next(int(line.split()[1]) * 1024.0 for line in lines if line.startswith("MemAvailable")))
    except (OSError, StopIteration):
        pass
    try:
        group = Path("/sys/fs/cgroup")
        allowed, used = (float((group / name).read_text()) for name in ("memory.max", "memory.current"))
        found.append(max(0.0, allowed - used))
    except (OSError, ValueError):  # no such file, or "max": not limited
        pass
    return min(found)


def peak_rss_bytes() -> int:
    """The most main memory this process has held at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
