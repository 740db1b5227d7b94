"""What a step costs: its time at several batches with a line through it, and its memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from bigbatch import rng
from bigbatch.advice.goodput import DRAWS, Floats
from bigbatch.errors import Problem
from bigbatch.output.formatting import format_percent
from bigbatch.probes.measurement.record import Record
from bigbatch.training.micro_batch import available_bytes

_SIZES = 5
_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 40
_KEY = 701  # keeps these random numbers apart from others (see rng.py)
_USABLE_FRACTION = 0.9  # of free memory; the rest is left to the system


@dataclass(frozen=True)
class StepTimes(Record):
    """The time of a step at several batches, and the line t(B) = a + b·B through the shortest of each."""

    batches: list[int]
    seconds: list[float]  # the shortest of each batch: other processes only add time
    rounds: list[list[float]]  # [rounds, batches]
    fixed_seconds: float
    seconds_per_sample: float
    misfit: float  # the largest relative distance of a time from the line
    spread: float  # how much longer than the shortest a step takes at the median: how busy the machine is
    unit: str = "seconds"
    micro_batch: int | None = None

    @classmethod
    def fit(cls, batches: Sequence[int], rounds: Floats, unit: str = "seconds") -> StepTimes:
        sizes, shortest = np.asarray(batches, float), rounds.min(axis=0)
        fixed, per_sample = fit_line(sizes, shortest)
        misfit = float(np.abs((fixed + per_sample * sizes) / shortest - 1).max())
        spread = float(np.median(rounds / shortest) - 1)
        return cls(list(batches), shortest.tolist(), rounds.tolist(), fixed, per_sample, misfit, spread, unit)

    def seconds_per_sample_at(self, batch: int) -> float:
        return self.fixed_seconds / batch + self.seconds_per_sample

    def bootstrap_lines(self) -> tuple[Floats, Floats]:
        """a and b with rounds and batches resampled: how they vary with noise and with a line that does not fit."""
        sizes, times = np.asarray(self.batches, float), np.asarray(self.rounds)
        rounds, places = times.shape
        chosen_rounds = rng.integers(rounds, 1, _KEY, np.arange(DRAWS * rounds)).reshape(DRAWS, rounds)
        chosen_places = rng.integers(places, 2, _KEY, np.arange(DRAWS * places)).reshape(DRAWS, places)
        lines = []
        for some_rounds, some_places in zip(chosen_rounds, chosen_places, strict=True):
            if len(np.unique(some_places)) < 3:
                some_places = np.arange(places)
            lines.append(fit_line(sizes[some_places], times[some_rounds].min(axis=0)[some_places]))
        fixed, per_sample = np.asarray(lines).T
        return fixed, per_sample


def fit_line(batches: Floats, seconds: Floats) -> tuple[float, float]:
    """Least relative squares; neither a nor b is negative."""
    from scipy.optimize import nnls

    fixed, per_sample = nnls(np.stack([1 / seconds, batches / seconds], axis=1), np.ones(len(seconds)))[0]
    return float(fixed), float(per_sample)


def choose_batches(now: int, cap: int, seconds_per_sample: float, seconds: float) -> tuple[int, ...]:
    """Five batches from a quarter of the present one up, each four times or twice the one before, as far as data,
    memory and time allow."""
    rounds = _FEWEST_ROUNDS + 1  # the first warms up; a round is at most twice its largest batch
    affordable = seconds / (2 * rounds * max(seconds_per_sample, 1e-12))
    low = max(1, now // 4)
    for ratio in (4, 2):
        if low * ratio ** (_SIZES - 1) <= min(cap, max(affordable, 4 * now)):
            return tuple(low * ratio**place for place in range(_SIZES))
    low = max(1, min(low, cap // 2**_SIZES))
    sizes = {round(low * (cap / low) ** (place / (_SIZES - 1))) for place in range(_SIZES)}
    if len(sizes) < 3:
        raise Problem(f"{cap} samples are too few to time steps of several batches: give at least 8")
    return tuple(sorted(sizes))


def time_steps(
    batches: Sequence[int],
    step: Callable[[int], object],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    unit: str = "seconds",
) -> StepTimes:
    """Rounds of one step at each batch, so that a busy moment affects all of them; at least three rounds."""
    for batch in batches:  # first touch: allocations and kernel choice
        step(batch)
    started = time.perf_counter()
    rounds: list[list[float]] = []
    while len(rounds) < _FEWEST_ROUNDS or (
        len(rounds) < _MOST_ROUNDS and time.perf_counter() - started < seconds * len(rounds) / (len(rounds) + 1)
    ):
        times = []
        for batch in batches:
            before = clock()
            step(batch)
            times.append(clock() - before)
        rounds.append(times)
    return StepTimes.fit(batches, np.asarray(rounds), unit)


# -- memory


@dataclass(frozen=True)
class MemoryUse(Record):
    """Memory of a step as a line over the batch."""

    fixed_bytes: float
    bytes_per_sample: float
    available_bytes: float | None  # None where the system does not say
    method: str
    limits: str = "the batch"  # what the memory limits: the batch, or a micro-batch

    @property
    def cap(self) -> int | None:
        """The largest batch without micro-batches; None where memory is unknown or samples take none."""
        if self.available_bytes is None or self.bytes_per_sample <= 0:
            return None
        return max(1, int((_USABLE_FRACTION * self.available_bytes - self.fixed_bytes) / self.bytes_per_sample))


def measure_memory(device: torch.device, backward: Callable[[int], object], smaller: int, larger: int) -> MemoryUse:
    """`backward(n)` runs forward and backward with n samples at once and leaves nothing allocated."""
    if smaller == larger:
        return MemoryUse(0.0, 0.0, None, "not measured: there are too few samples for two batches")
    peak = _peak_on_gpu if device.type == "cuda" else _peak_on_cpu
    backward(smaller)  # allocations that are kept do not belong to a sample
    low, high = peak(lambda: backward(smaller)), peak(lambda: backward(larger))
    per_sample = max(0.0, (high - low) / (larger - smaller))
    available = float(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else available_bytes()
    method = (
        f"an estimate: the peak of what torch allocates forward and backward at {smaller} and at {larger} samples, "
        f"continued as a line up to {format_percent(_USABLE_FRACTION)} of the memory that is free now"
    )
    return MemoryUse(max(0.0, low - per_sample * smaller), per_sample, available, method)


def _peak_on_gpu(work: Callable[[], object]) -> float:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    return float(torch.cuda.max_memory_allocated() - before)


def _peak_on_cpu(work: Callable[[], object]) -> float:
    """From torch's record of each allocation: the size of the process also includes memory that was freed."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler prints a greeting to stderr
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return float(peak)
