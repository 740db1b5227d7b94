"""Another dataset of images with known noise planted in its training set, to see which filter finds it.

Run(dataset={"name": "planted", "of": "cifar10", "kinds": {"flip": 0.05, "blur": 0.01}}, ...)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from bigbatch import parts, rng
from bigbatch.datasets import Dataset, sha256
from bigbatch.datasets import load as load_dataset
from bigbatch.datasets.reading.images import InMemoryImages
from bigbatch.errors import Problem, did_you_mean

CLEAN = -1
_CHOICE, _LABEL, _SOURCE, _PIXELS = 221, 222, 223, 224  # random streams


def _random_pixels(images: Tensor, others: Tensor, draw: Tensor) -> Tensor:
    return draw


def _darken(images: Tensor, others: Tensor, draw: Tensor) -> Tensor:
    return images * 0.05


def _one_colour(images: Tensor, others: Tensor, draw: Tensor) -> Tensor:
    return draw[:, :, :1, :1].expand_as(images)


def _blur(images: Tensor, others: Tensor, draw: Tensor) -> Tensor:
    """An eighth of the resolution."""
    small = avg_pool2d(images, max(1, min(images.shape[2:]) // 4), ceil_mode=True)
    return interpolate(small, size=images.shape[2:], mode="bilinear")


def _shuffle_tiles(images: Tensor, others: Tensor, draw: Tensor) -> Tensor:
    """Quarters of each side, in another order."""
    height, width = (side // 4 for side in images.shape[2:])
    tiles = images[:, :, : 4 * height, : 4 * width].unfold(2, height, height).unfold(3, width, width).flatten(2, 3)
    order = draw[:, 0, :4, :4].flatten(1).argsort(dim=1)[:, None, :, None, None].expand_as(tiles)
    shuffled = tiles.gather(2, order).unflatten(2, (4, 4)).permute(0, 1, 2, 4, 3, 5)
    whole = images.clone()
    whole[:, :, : 4 * height, : 4 * width] = shuffled.reshape(*images.shape[:2], 4 * height, 4 * width)
    return whole


def _mix(images: Tensor, others: Tensor, draw: Tensor) -> Tensor:
    return (images + others) / 2


def _cover_half(images: Tensor, others: Tensor, draw: Tensor) -> Tensor:
    covered = images.clone()
    covered[..., images.shape[3] // 2 :] = 0.5
    return covered


# what becomes of images in 0..1, given images of other classes and random numbers of the same shape
_IMAGES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "noise": _random_pixels,
    "dark": _darken,
    "constant": _one_colour,
    "duplicate": lambda images, others, draw: others,  # of another class, under the label of the sample it replaces
    "blur": _blur,
    "shuffle": _shuffle_tiles,
    "mix": _mix,
    "cover": _cover_half,
    "invert": lambda images, others, draw: 1 - images,
}
KINDS = ("flip", "confuse", *_IMAGES)  # flip: to any other class; confuse: to the class with the nearest mean image


class Config(parts.Config):
    of: Annotated[SerializeAsAny[parts.Config], BeforeValidator(partial(parts.configure, "datasets"))]
    kinds: dict[str, Annotated[float, Field(gt=0, lt=1)]] = Field(  # the fraction of the training samples for each
        default_factory=lambda: {"flip": 0.02, "noise": 0.005, "dark": 0.005, "duplicate": 0.005}
    )
    samples: int | None = Field(None, ge=1)  # that many random ones instead of all
    seed: int = Field(0, ge=0)

    @field_validator("kinds")
    @classmethod
    def _check_kinds(cls, kinds: dict[str, float]) -> dict[str, float]:
        for kind in kinds:
            if kind not in KINDS:
                raise ValueError(f"has '{kind}'{did_you_mean(kind, KINDS)} There are {', '.join(KINDS)}")
        if sum(kinds.values()) >= 1:
            raise ValueError(f"add up to {sum(kinds.values()):g}: plant less than all samples")
        return kinds


def load(config: Config, data_dir: Path | None = None) -> Dataset:
    return plant(config, data_dir)[0]


def plant(config: Config, data_dir: Path | None = None) -> tuple[Dataset, NDArray[np.int64]]:
    """Return the dataset with its noise, and for each training sample the index of its kind in `kinds`, or CLEAN."""
    dataset = load_dataset(config.of, data_dir)
    train = dataset.train
    if not isinstance(train, InMemoryImages):
        raise Problem(f"dataset '{config.of.name}' does not hold images in memory: plant noise in cifar10 or mnist")
    count = min(config.samples or len(train), len(train))
    chosen = rng.permutation(len(train), config.seed, _CHOICE)[:count].sort().values
    originals, true_labels = train.images[chosen], train.labels[chosen]
    images, labels = originals.clone(), true_labels.clone()
    order = rng.permutation(count, config.seed, _CHOICE, 1)
    kind_of = np.full(count, CLEAN, np.int64)
    begin = 0
    for number, (kind, fraction) in enumerate(config.kinds.items()):
        end = begin + round(fraction * count)
        rows = order[begin:end].sort().values
        kind_of[rows] = number
        if kind in _IMAGES:
            images[rows] = _change_images(kind, originals, true_labels, rows, train.white, config.seed)
        else:
            labels[rows] = _change_labels(kind, originals, true_labels, rows, len(dataset.classes), config.seed)
        begin = end
    planted = InMemoryImages(images, labels, train.augment, train.white)
    return replace(dataset, train=planted, hash=sha256(images, labels)), kind_of


def _change_images(kind: str, images: Tensor, labels: Tensor, rows: Tensor, white: int, seed: int) -> Tensor:
    stream = KINDS.index(kind)
    draw = torch.from_numpy(rng.uniform(seed, stream, _PIXELS, np.arange(images[rows].numel()))).float()
    starts = rng.integers(len(labels), seed, stream, _SOURCE, rows.numpy()).tolist()
    shifted = [(labels.roll(-start) != labels[row]).int().argmax() for row, start in zip(rows, starts, strict=True)]
    others = (torch.stack(shifted) + torch.tensor(starts)) % len(labels)  # from a random one, the next of another class
    pixels, other_pixels = (images[chosen].float() / white for chosen in (rows, others))
    changed = _IMAGES[kind](pixels, other_pixels, draw.view_as(pixels))
    return (changed * white).round().clamp(0, white).to(images.dtype)


def _change_labels(kind: str, images: Tensor, labels: Tensor, rows: Tensor, classes: int, seed: int) -> Tensor:
    if kind == "flip":
        steps = rng.integers(classes - 1, seed, _LABEL, rows.numpy())
        return (labels[rows] + 1 + torch.from_numpy(steps)) % classes
    means = torch.stack([images[labels == index].float().mean(0).flatten() for index in range(classes)])
    distances = torch.cdist(means, means).fill_diagonal_(torch.inf)
    return distances.nan_to_num(torch.inf).argmin(1)[labels[rows]]
