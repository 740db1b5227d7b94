"""Images that are decoded when they are asked for: cropped out of files of any size, slow enough for workers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from bigbatch import rng
from bigbatch.datasets.reading.images import AREA, LEFT, TOP, flips
from bigbatch.errors import Problem

_CROP_ATTEMPTS = 10
_AREA_FRACTIONS = (0.08, 1.0)
_LOG_ASPECT_RATIOS = (math.log(3 / 4), math.log(4 / 3))

Box = tuple[int, int, int, int]  # left, top, right, bottom


@dataclass(frozen=True)
class Decoding:
    """How a decoded image becomes an input of `size` x `size` pixels."""

    size: int
    resize: int  # the side that evaluation and "minimal" scale to before they crop
    augment: Literal["random_resized_crop", "minimal", "none"]
    flip: bool
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


class LazyImages:
    """What all lazily decoded sets share; a subclass knows how to open sample number i.

    It is picklable, and rows are pure functions of (seed, epoch, sample): a worker process gives the same ones.
    """

    lazy = True
    sequential = False

    def __init__(self, labels: Tensor, decoding: Decoding, workers: int | None) -> None:
        self.labels = labels
        self.decoding = decoding
        self.workers = workers  # processes that this set asks for; None: one a core

    def __len__(self) -> int:
        return len(self.labels)

    def open(self, sample: int) -> Image.Image:
        """The image as it is stored."""
        raise NotImplementedError

    def describe(self, sample: int) -> str:
        """What a person has to look for when the image is broken."""
        raise NotImplementedError

    def fetch(self, indices: Tensor, *, seed: int = 0, epoch: int | None = None) -> tuple[Tensor, Tensor]:
        """Normalised crops [n, 3, size, size] and labels."""
        size = self.decoding.size
        pixels = np.empty((len(indices), size, size, 3), np.uint8)
        for row, sample in enumerate(indices.tolist()):
            pixels[row] = self._crop(sample, seed, epoch)
        inputs = torch.from_numpy(pixels).permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        mean, std = (torch.tensor(values)[:, None, None] for values in (self.decoding.mean, self.decoding.std))
        return inputs.div_(255).sub_(mean).div_(std), self.labels[indices]

    def _crop(self, sample: int, seed: int, epoch: int | None) -> NDArray[np.uint8]:
        try:
            with self.open(sample) as stored:
                image = stored.convert("RGB")
        # Pillow's plugins let any of these through when a file is cut or is no image
        except (OSError, SyntaxError, ValueError, EOFError, IndexError, Image.DecompressionBombError) as error:
            raise Problem(f"{self.describe(sample)} is not a whole image ({error}): replace or remove it") from error
        if epoch is None or self.decoding.augment == "none":
            crop = self._centre_crop(image)
        elif self.decoding.augment == "minimal":
            crop = self._minimal_crop(image, sample, seed, epoch)
        else:
            box = _random_box(image.size, sample, seed, epoch)
            crop = image.crop(box).resize((self.decoding.size,) * 2, Image.Resampling.BILINEAR)
        if epoch is not None and self.decoding.flip and flips(np.array([sample]), seed, epoch)[0]:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return np.asarray(crop)

    def _centre_crop(self, image: Image.Image) -> Image.Image:
        """The middle after scaling: the shorter side to `resize`, or both sides where training does so too."""
        size, resize = self.decoding.size, self.decoding.resize
        if self.decoding.augment == "minimal":
            scaled_size = (resize, resize)
        else:
            shorter = min(image.size)
            scaled_size = (resize * image.width // shorter, resize * image.height // shorter)
        scaled = image.resize(scaled_size, Image.Resampling.BILINEAR)
        left, top = (scaled.width - size) // 2, (scaled.height - size) // 2
        return scaled.crop((left, top, left + size, top + size))

    def _minimal_crop(self, image: Image.Image, sample: int, seed: int, epoch: int) -> Image.Image:
        """The LARS paper's minimal augmentation: scaled to a square, then a random crop."""
        size, resize = self.decoding.size, self.decoding.resize
        scaled = image.resize((resize, resize), Image.Resampling.BILINEAR)
        top = int(rng.integers(resize - size + 1, seed, epoch, TOP, sample)[0])
        left = int(rng.integers(resize - size + 1, seed, epoch, LEFT, sample)[0])
        return scaled.crop((left, top, left + size, top + size))


def _random_box(image_size: tuple[int, int], sample: int, seed: int, epoch: int) -> Box:
    """Inception's crop (Szegedy et al. 2015): 8 to 100 % of the area, aspect ratio 3/4 to 4/3; else the middle."""
    width, height = image_size
    draws = rng.uniform(seed, epoch, AREA, sample, np.arange(4 * _CROP_ATTEMPTS)).reshape(-1, 4)
    for area_draw, aspect_draw, top_draw, left_draw in draws.tolist():
        area = width * height * _between(_AREA_FRACTIONS, area_draw)
        aspect_ratio = math.exp(_between(_LOG_ASPECT_RATIOS, aspect_draw))
        box_width, box_height = round(math.sqrt(area * aspect_ratio)), round(math.sqrt(area / aspect_ratio))
        if 0 < box_width <= width and 0 < box_height <= height:
            left, top = int(left_draw * (width - box_width + 1)), int(top_draw * (height - box_height + 1))
            return left, top, left + box_width, top + box_height
    return _middle_box(width, height)


def _middle_box(width: int, height: int) -> Box:
    """As much of a very long or very high image as the aspect ratios allow."""
    box_width, box_height = min(width, max(1, round(height * 4 / 3))), min(height, max(1, round(width * 4 / 3)))
    left, top = (width - box_width) // 2, (height - box_height) // 2
    return left, top, left + box_width, top + box_height


def _between(ends: tuple[float, float], fraction: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * fraction
