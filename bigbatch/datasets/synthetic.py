"""Random inputs and labels of a given shape, or random words, kept in memory: for timing, and for first steps."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.datasets.reading.hashing import hash_json


class Config(parts.Config):
    sample_shape: tuple[PositiveInt, ...] = Field((3, 32, 32), min_length=1)  # one number: a text of that many words
    classes: PositiveInt = 10
    samples: PositiveInt = 1024
    grid: PositiveInt | None = None  # an image is enlarged from this many random pixels per side: neighbours are alike
    mean: float = 0.0  # of pixels in 0..1; (pixel − mean) / std is what a model gets
    std: PositiveFloat = 1.0

    later_fields: ClassVar = ("grid", "mean", "std")


class SyntheticSamples:
    """Random samples, the same ones for the same options."""

    lazy = False

    def __init__(self, config: Config) -> None:
        self.sequential = len(config.sample_shape) == 1
        shape = (config.samples, *config.sample_shape)
        generator = torch.Generator().manual_seed(0)
        if self.sequential:
            self.inputs = torch.randint(config.classes, shape, generator=generator)
            self.labels = self.inputs
        else:
            if config.grid:
                coarse = torch.rand(*shape[:2], config.grid, config.grid, generator=generator)
                pixels = torch.nn.functional.interpolate(coarse, size=shape[2:], mode="bilinear")
            else:
                pixels = torch.rand(shape, generator=generator)
            self.inputs = (pixels - config.mean) / config.std
            self.labels = torch.randint(config.classes, (config.samples,), generator=generator)

    def __len__(self) -> int:
        return len(self.inputs)

    def as_streams(self, streams: int) -> SyntheticSamples:
        """Text in parallel streams: each sample is one."""
        return self

    def fetch(self, indices: Tensor, *, seed: int = 0, epoch: int | None = None) -> tuple[Tensor, Tensor]:
        return self.inputs[indices], self.labels[indices]


def load(config: Config, data_dir: Path | None = None) -> Dataset:
    samples = SyntheticSamples(config)
    return Dataset(
        train=samples,
        test=samples,
        classes=tuple(map(str, range(config.classes))),
        sample_shape=config.sample_shape,
        hash=hash_json(config.model_dump(mode="json")),
        task="language" if samples.sequential else "classify",
    )
