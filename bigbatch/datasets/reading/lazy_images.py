"""Images that are decoded on demand: cropped out of files of any size, slow enough for worker processes."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor

from bigbatch import parts, rng
from bigbatch.datasets.reading.images import AREA, LEFT, TOP, draw_flips
from bigbatch.errors import Problem

_MOST_PIXELS = 1 << 26  # 200 MB as RGB
_CROP_ATTEMPTS = 10
_LEAST_AREA = 0.08
_LEAST_LOG_ASPECT, _MOST_LOG_ASPECT = math.log(3 / 4), math.log(4 / 3)

Box = tuple[int, int, int, int]  # left, top, right, bottom


class LazyImageConfig(parts.Config):
    """How a decoded image becomes an input of `size` x `size` pixels, and how many processes decode."""

    size: int = Field(224, ge=1)
    resize: int = Field(256, ge=1)  # the side that evaluation and "minimal" scale to before they crop
    augment: Literal["random_resized_crop", "minimal", "none"] = "random_resized_crop"  # minimal: You et al. 2017
    flip: bool = False
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = (0.229, 0.224, 0.225)
    workers: int | None = Field(None, ge=0)  # processes that decode; None: one per core

    @model_validator(mode="after")
    def _check_crop_fits(self) -> LazyImageConfig:
        if self.size > self.resize:
            raise ValueError(f"size {self.size} cannot be cut out of resize {self.resize}: make resize larger")
        return self


class LazyImages:
    """Base class of lazily decoded sets; a subclass opens the image of a sample.

    It is picklable, and rows are pure functions of (seed, epoch, sample): a worker process returns the same rows.
    """

    lazy = True
    sequential = False

    def __init__(self, labels: Tensor, config: LazyImageConfig) -> None:
        self.labels = labels
        self.config = config

    def __len__(self) -> int:
        return len(self.labels)

    def open(self, sample: int) -> Image.Image:
        """Return the image as it is stored."""
        raise NotImplementedError

    def describe(self, sample: int) -> str:
        """Name the file or row of a sample for an error message."""
        raise NotImplementedError

    def fetch(self, indices: Tensor, *, seed: int = 0, epoch: int | None = None) -> tuple[Tensor, Tensor]:
        """Return normalised crops [n, 3, size, size] and labels."""
        size = self.config.size
        pixels = np.empty((len(indices), size, size, 3), np.uint8)
        for row, sample in enumerate(indices.tolist()):
            pixels[row] = self._crop(sample, seed, epoch)
        inputs = torch.from_numpy(pixels).permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        mean, std = (torch.tensor(values)[:, None, None] for values in (self.config.mean, self.config.std))
        return inputs.div_(255).sub_(mean).div_(std), self.labels[indices]

    def _crop(self, sample: int, seed: int, epoch: int | None) -> NDArray[np.uint8]:
        try:
            with self.open(sample) as stored:
                check_pixels(stored)
                image = stored.convert("RGB")
        # Pillow's plugins let any of these through when a file is truncated or not an image
        except (OSError, SyntaxError, ValueError, EOFError, IndexError, Image.DecompressionBombError) as error:
            raise Problem(f"{self.describe(sample)} is not a complete image ({error}): replace or remove it") from error
        if epoch is None or self.config.augment != "random_resized_crop":
            crop = self._crop_scaled(image, sample, seed, epoch)
        else:
            box = _random_box(image.size, sample, seed, epoch)
            crop = image.crop(box).resize((self.config.size,) * 2, Image.Resampling.BILINEAR)
        if epoch is not None and self.config.flip and draw_flips(np.array([sample]), seed, epoch)[0]:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return np.asarray(crop)

    def _crop_scaled(self, image: Image.Image, sample: int, seed: int, epoch: int | None) -> Image.Image:
        """Scale the shorter side to `resize` and crop the centre; `minimal`, as in the LARS paper, scales to a square
        and in training crops at random."""
        size, resize = self.config.size, self.config.resize
        minimal = self.config.augment == "minimal"
        width, height = (1, 1) if minimal else image.size
        shorter = min(width, height)
        scaled = image.resize((resize * width // shorter, resize * height // shorter), Image.Resampling.BILINEAR)
        left, top = (scaled.width - size) // 2, (scaled.height - size) // 2
        if minimal and epoch is not None:
            left, top = (int(rng.integers(resize - size + 1, seed, epoch, way, sample)[0]) for way in (LEFT, TOP))
        return scaled.crop((left, top, left + size, top + size))


def check_pixels(stored: Image.Image) -> None:
    """Refuse an image by the size in its header, before it is decoded."""
    if stored.width * stored.height > _MOST_PIXELS:
        raise ValueError(f"{stored.width} x {stored.height} pixels are more than {_MOST_PIXELS:,}")


def _random_box(image_size: tuple[int, int], sample: int, seed: int, epoch: int) -> Box:
    """Inception's crop (Szegedy et al. 2015): 8 to 100 % of the area, aspect ratio 3/4 to 4/3; else the centre."""
    width, height = image_size
    draws = rng.uniform(seed, epoch, AREA, sample, np.arange(4 * _CROP_ATTEMPTS)).reshape(-1, 4)
    for area_draw, aspect_draw, top_draw, left_draw in draws.tolist():
        area = width * height * (_LEAST_AREA + (1 - _LEAST_AREA) * area_draw)
        aspect_ratio = math.exp(_LEAST_LOG_ASPECT + (_MOST_LOG_ASPECT - _LEAST_LOG_ASPECT) * aspect_draw)
        box_width, box_height = round(math.sqrt(area * aspect_ratio)), round(math.sqrt(area / aspect_ratio))
        if 0 < box_width <= width and 0 < box_height <= height:
            left, top = int(left_draw * (width - box_width + 1)), int(top_draw * (height - box_height + 1))
            return left, top, left + box_width, top + box_height
    return _centre_box(width, height)


def _centre_box(width: int, height: int) -> Box:
    """The largest centred box that the aspect ratios allow in a very wide or very high image."""
    box_width, box_height = min(width, max(1, round(height * 4 / 3))), min(height, max(1, round(width * 4 / 3)))
    left, top = (width - box_width) // 2, (height - box_height) // 2
    return left, top, left + box_width, top + box_height
