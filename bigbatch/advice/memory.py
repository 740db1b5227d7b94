"""How many samples fit into memory at once: what torch holds during a step at two batches, drawn on as a line."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch

from bigbatch.advice.words import percent
from bigbatch.training.micro_batch import available_bytes

_USABLE = 0.9  # of what is free: the rest is the system's


@dataclass(frozen=True)
class Memory:
    fixed_bytes: float
    bytes_per_sample: float
    available_bytes: float  # infinite where the system does not say
    method: str

    @property
    def cap(self) -> int | None:
        """The largest batch in one piece; None where memory is unknown or samples take none."""
        if math.isinf(self.available_bytes) or self.bytes_per_sample <= 0:
            return None
        return max(1, int((_USABLE * self.available_bytes - self.fixed_bytes) / self.bytes_per_sample))


def measured(device: torch.device, backward: Callable[[int], object], smaller: int, larger: int) -> Memory:
    """`backward(n)` goes forward and backward with n samples in one piece and leaves nothing behind."""
    if smaller == larger:
        return Memory(0.0, 0.0, math.inf, "not measured: there are too few samples for two batches")
    peak = _peak_on_gpu if device.type == "cuda" else _peak_on_cpu
    backward(smaller)  # what is allocated once and kept is not a sample's
    low, high = peak(lambda: backward(smaller)), peak(lambda: backward(larger))
    per_sample = max(0.0, (high - low) / (larger - smaller))
    available = float(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else available_bytes()
    method = (
        f"an estimate: the peak of what torch allocates forward and backward at {smaller} and at {larger} samples, "
        f"drawn on as a line up to {percent(_USABLE)} of the memory that is free now"
    )
    return Memory(max(0.0, low - per_sample * smaller), per_sample, available, method)


def _peak_on_gpu(work: Callable[[], object]) -> float:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    return float(torch.cuda.max_memory_allocated() - before)


def _peak_on_cpu(work: Callable[[], object]) -> float:
    """From torch's own record of each allocation: a process's size is no measure, since freed memory stays in it."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would greet on stderr
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return float(peak)
