"""Where a training stands, in units that know nothing of ranks or micro-batches."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Slice:
    """Samples start..stop-1 of a global batch: one micro-batch."""

    start: int
    stop: int

    @property
    def count(self) -> int:
        return self.stop - self.start


def split_evenly(start: int, stop: int, parts: int) -> list[Slice]:
    """Contiguous slices whose sizes differ by at most one, so that no BatchNorm group is a single left-over sample."""
    count = stop - start
    bounds = [start + count * part // parts for part in range(parts + 1)] if parts else []
    return [Slice(low, high) for low, high in pairwise(bounds)]


@dataclass(frozen=True)
class Progress:
    """How far a training has come."""

    step: int = 0
    samples: int = 0
    epoch: int = 0  # whole epochs finished
    offset: int = 0  # samples seen in the epoch at hand


@dataclass(frozen=True)
class Position:
    """What schedules, batch sizes and probes may know of time.

    The learning rate of a step holds for its whole batch, so schedules read `epochs` at the middle of the batch: linear
    ramps are then exact in the mean, and neither the first nor the last step has a learning rate of zero.
    """

    epochs: float  # epochs of training data seen, a fraction within the epoch
    total_epochs: float  # the budget of the run in the same unit
    global_batch: int  # samples in the batch at hand, over all ranks
    step: int = 0  # optimizer steps taken before this one
    samples: int = 0  # samples seen before this step
