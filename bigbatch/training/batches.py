"""Which samples make up each global batch, and which rank computes which of them.

The order is a pure function of (seed, epoch): never of rank, worker or micro-batch. Where a training stands is
therefore a handful of integers, and any number of ranks can continue with the same samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from bigbatch import rng
from bigbatch.datasets import Dataset, Samples
from bigbatch.errors import Problem
from bigbatch.position import Progress, Slice, split_evenly


@dataclass(frozen=True)
class Batch:
    """One global batch: the indices of its samples, and the micro-batches of every rank."""

    indices: Tensor
    global_batch: int  # the setting; the last batch of an epoch has fewer samples
    epoch: int
    split: Split
    after: Progress
    epoch_ends: bool

    @property
    def count(self) -> int:
        return len(self.indices)

    @cached_property
    def by_rank(self) -> tuple[tuple[Slice, ...], ...]:
        return self.split.slices(self.count)

    @property
    def every_rank_has_work(self) -> bool:
        return all(self.by_rank)

    @property
    def micro_batches(self) -> int:
        return sum(len(slices) for slices in self.by_rank)


@dataclass(frozen=True)
class Split:
    """How a global batch is divided into micro-batches and ranks. The gradient is the same for every split."""

    world_size: int
    micro_batch: int
    whole_groups: bool = False  # micro-batches are BatchNorm groups: split first, then distributed over ranks

    def slices(self, count: int) -> tuple[tuple[Slice, ...], ...]:
        """The micro-batches of every rank for a batch of `count` samples."""
        if self.whole_groups:
            groups = split_evenly(0, count, -(-count // self.micro_batch))
            ranks = split_evenly(0, len(groups), self.world_size)
            return tuple(tuple(groups[rank.start : rank.stop]) for rank in ranks)
        return tuple(
            tuple(split_evenly(rank.start, rank.stop, -(-rank.count // self.micro_batch)))
            for rank in split_evenly(0, count, self.world_size)
        )


class Batches:
    """The training set, cut into global batches in an order that depends on (seed, epoch) alone."""

    def __init__(self, dataset: Dataset, seed: int, kept: Tensor | None = None) -> None:
        self.dataset = dataset
        self.seed = seed
        self.kept = kept
        self._order = lru_cache(maxsize=2)(self._compute_order)
        self._streams = lru_cache(maxsize=2)(self._cut_into_streams)

    def samples(self, global_batch: int) -> Samples:
        """The samples to fetch from. Text is cut into as many streams as the global batch has samples."""
        return self._streams(global_batch) if self.dataset.task == "language" else self.dataset.train

    def epoch_samples(self, global_batch: int) -> int:
        if self.kept is not None:
            return len(self.kept)
        return len(self.samples(global_batch))

    def check(self, global_batch: int) -> None:
        """Raise a Problem if an epoch has fewer samples than one batch."""
        epoch_samples = self.epoch_samples(global_batch)
        if global_batch > epoch_samples:
            raise Problem(
                f"global_batch {global_batch} is larger than the {epoch_samples} training samples: "
                f"use --set global_batch={epoch_samples} or less"
            )

    def next(self, progress: Progress, global_batch: int, split: Split, at_most: int | None = None) -> Batch:
        """Return the next batch. The last one of an epoch may be smaller."""
        self.check(global_batch)
        epoch_samples = self.epoch_samples(global_batch)
        count = min(global_batch, epoch_samples - progress.offset)
        if at_most is not None:
            count = min(count, at_most)
        indices = self._order(progress.epoch, global_batch)[progress.offset : progress.offset + count]
        epoch_ends = progress.offset + count == epoch_samples
        after = replace(
            progress,
            step=progress.step + 1,
            samples=progress.samples + count,
            epoch=progress.epoch + epoch_ends,
            offset=0 if epoch_ends else progress.offset + count,
        )
        return Batch(indices, global_batch, progress.epoch, split, after, epoch_ends)

    def _cut_into_streams(self, global_batch: int) -> Samples:
        streams: Samples = self.dataset.train.as_streams(global_batch)  # type: ignore[attr-defined]
        return streams

    def _compute_order(self, epoch: int, global_batch: int) -> Tensor:
        epoch_samples = self.epoch_samples(global_batch)
        if self.samples(global_batch).sequential:
            return torch.arange(epoch_samples)
        order = rng.permutation(epoch_samples, self.seed, epoch, rng.ORDER)
        return order if self.kept is None else self.kept[order]
