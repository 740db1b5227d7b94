"""The position in a training, in units that do not depend on ranks or micro-batches."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Slice:
    """Samples start..stop-1 of a global batch: one micro-batch."""

    start: int
    stop: int

    @property
    def count(self) -> int:
        return self.stop - self.start

    def of(self, values: Tensor) -> Tensor:
        """Return the rows of this slice."""
        return values[self.start : self.stop]


def split_evenly(start: int, stop: int, parts: int) -> list[Slice]:
    """Return contiguous slices whose sizes differ by at most one: no BatchNorm group is a single remaining sample."""
    count = stop - start
    bounds = [start + count * part // parts for part in range(parts + 1)] if parts else []
    return [Slice(low, high) for low, high in pairwise(bounds)]


@dataclass(frozen=True)
class Progress:
    """The steps, samples and epochs that a training has finished."""

    step: int = 0
    samples: int = 0
    epoch: int = 0  # finished epochs
    offset: int = 0  # samples seen in the current epoch


@dataclass(frozen=True)
class Position:
    """The position that schedules, batch sizes and probes read.

    The learning rate of a step holds for its whole batch, so schedules read `epochs` at the middle of the batch: linear
    ramps are then exact in the mean, and neither the first nor the last step has a learning rate of zero.
    """

    epochs: float  # epochs of training data seen, with a fractional part
    total_epochs: float  # the length of the training
    global_batch: int  # samples in the current batch, over all ranks
    step: int = 0  # optimizer steps taken before this one
    samples: int = 0  # samples seen before this step
