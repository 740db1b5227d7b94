"""A dataset that only has a shape: random images and labels, or random words."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bigbatch.datasets import Dataset


class MadeUp:
    """As many samples as a global batch, kept in memory. One number as a shape is a text of that many words."""

    lazy = False

    def __init__(self, sample_shape: tuple[int, ...], classes: int, samples: int) -> None:
        self.sequential = len(sample_shape) == 1
        shape = (samples, *sample_shape)
        generator = torch.Generator().manual_seed(0)
        if self.sequential:
            self.inputs = torch.randint(classes, shape, generator=generator)
            self.labels = self.inputs
        else:
            self.inputs = torch.rand(shape, generator=generator)
            self.labels = torch.randint(classes, (samples,), generator=generator)

    def __len__(self) -> int:
        return len(self.inputs)

    def arranged(self, global_batch: int) -> MadeUp:
        """Text as streams: every sample is one."""
        return self

    def fetch(self, indices: Tensor, *, seed: int = 0, epoch: int | None = None) -> tuple[Tensor, Tensor]:
        return self.inputs[indices], self.labels[indices]


def dataset(sample_shape: Sequence[int], classes: int, samples: int) -> Dataset:
    """What a run names as `bigbatch.scaling.measured.made_up:dataset`."""
    shape = tuple(sample_shape)
    made = MadeUp(shape, classes, samples)
    task = "language" if made.sequential else "classify"
    return Dataset(made, made, tuple(map(str, range(classes))), shape, "", task)  # type: ignore[arg-type]
