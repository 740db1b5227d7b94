"""How a global batch is split into micro-batches on this machine.

Where the model has BatchNorm, micro-batches are its groups. Elsewhere the fastest one that fits is found by timing a
few sizes: the largest is often not it. The choice changes nothing but rounding and speed. It is remembered for a
machine, model and batch, written into run.json and kept on resume, so that two runs of one seed agree to the bit.
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
from typing import TYPE_CHECKING, Any

import torch

from bigbatch import batch_sizes
from bigbatch.artifacts import atomic, provenance
from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem
from bigbatch.run import Run
from bigbatch.training import batchnorm
from bigbatch.training.batches import Split

if TYPE_CHECKING:
    from bigbatch.training.assembly import AssembledRun

_DEFAULT_GROUP = 128  # samples that BatchNorm normalises over, where neither the run nor its folder decides
_SMALLEST = 8
_ROUNDS = 3  # the least of these is taken: other processes only ever add time
_SECONDS = 20.0  # for all timing; sizes that a slow model has not tried by then stay untried
_HOPELESS = 1.3  # times the best: not worth another round


def choose_split(assembled: AssembledRun, folder: Folder, global_batch: int) -> Split:
    """Split a training's batches, and record in the folder how."""
    run, engine = assembled.run, assembled.engine
    local_batch = global_batch // engine.world_size
    if batchnorm.layers(assembled.model):
        group = engine.broadcast(_batchnorm_group(run, folder.resolved(), local_batch))
        if -(-global_batch // group) < engine.world_size:
            raise Problem(
                f"global_batch {global_batch} in BatchNorm groups of {group} leaves a rank of {engine.world_size} "
                f"without work: use --set batchnorm_group={local_batch} or less, or fewer ranks"
            )
        split = Split(engine.world_size, group, whole_groups=True)
    else:
        fixed = None if run.micro_batch == "auto" else run.micro_batch
        # exact sums of the same micro-batches are the same on any number of ranks
        whole = run.reduction == "exact"
        split = Split(engine.world_size, fixed or _fastest_micro_batch(assembled, folder), whole_groups=whole)
    if engine.rank == 0:
        groups = {"batchnorm_group": split.micro_batch} if batchnorm.layers(assembled.model) else {}
        folder.record_resolved(micro_batch=split.micro_batch, ranks=engine.world_size, **groups)
    return split


def split_at_rest(assembled: AssembledRun, folder: Folder | None, global_batch: int) -> Split:
    """Split one batch as the training in the folder would, without timing anything."""
    run, world_size = assembled.run, assembled.engine.world_size
    local_batch = max(1, global_batch // world_size)
    resolved = folder.resolved() if folder else {}
    if batchnorm.layers(assembled.model):
        return Split(world_size, min(_batchnorm_group(run, resolved, local_batch), local_batch), whole_groups=True)
    known = resolved.get("micro_batch", _DEFAULT_GROUP) if run.micro_batch == "auto" else run.micro_batch
    return Split(world_size, min(known, local_batch))


def _batchnorm_group(run: Run, resolved: dict[str, Any], local_batch: int) -> int:
    if run.batchnorm_group == "auto":
        if run.micro_batch != "auto":
            return run.micro_batch
        return resolved.get("batchnorm_group") or min(_DEFAULT_GROUP, local_batch)
    if run.micro_batch not in ("auto", run.batchnorm_group):
        raise Problem(
            f"micro_batch {run.micro_batch} differs from the BatchNorm group {run.batchnorm_group}, over which "
            f"this model normalises: use --set micro_batch=auto"
        )
    return run.batchnorm_group


def _fastest_micro_batch(assembled: AssembledRun, folder: Folder) -> int:
    """Rank 0 times, all ranks follow. A resumed run keeps its choice, so that it stays the same to the bit."""
    run, engine, forward = assembled.run, assembled.engine, assembled.gradient.forward
    global_batch = batch_sizes.largest(run.global_batch)  # smaller ones on the way are split by the same size
    local_batch = max(1, global_batch // engine.world_size)
    size = 0
    if engine.rank == 0:
        resolved = folder.resolved()
        if resolved.get("ranks") == engine.world_size and "micro_batch" in resolved:
            size = resolved["micro_batch"]
        else:
            key = {
                "model": run.model.model_dump(mode="json"),
                "sample_shape": assembled.dataset.sample_shape,
                "classes": len(assembled.dataset.classes),
                "dtype": run.dtype,
                "local_batch": local_batch,
                "ranks": engine.world_size,
                "torch": torch.__version__,
                "machine": provenance.hardware(),
            }
            size = remember(key, lambda: choose(local_batch, lambda count: forward.time_trial(count, global_batch)))
    chosen: int = engine.broadcast(size)
    return chosen


def choose(local_batch: int, seconds_for: Callable[[int], float]) -> int:
    """The micro-batch with the least time per sample. `seconds_for(n)` runs forward and backward on n samples."""
    started = time.perf_counter()
    per_sample: dict[int, float] = {}
    slower_in_a_row = 0
    grown_bytes = 0
    for candidate in _candidates(local_batch):
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


def remember(key: dict[str, object], find: Callable[[], int]) -> int:
    """Return what was found for this key on this machine before, or find and store it now."""
    path = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bigbatch" / "micro_batch"
    entry = path / hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()[:16]
    try:
        return int(entry.read_text())
    except (OSError, ValueError):
        found = find()
    with contextlib.suppress(Problem):  # a read-only home costs the next run a few seconds, nothing else
        atomic.write_text(entry, str(found))
    return found


def _candidates(local_batch: int) -> list[int]:
    """8, 16, 32 ... and the whole batch."""
    powers = (_SMALLEST << shift for shift in range(local_batch.bit_length()))
    return [*(size for size in powers if size < local_batch), local_batch]


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
