"""Images that fit into memory: each batch is cropped, flipped and normalised at once, without workers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbatch import rng

# random streams: a crop and a flip never use the same random number
TOP, LEFT, FLIP, AREA = 1, 2, 3, 4

# images normalised at a time: what was gathered is still in the cache when it is turned into floats
_IMAGES_PER_CHUNK = 256


@dataclass(frozen=True)
class Augment:
    """How a stored image becomes an input. Mean and std are per channel, for pixels in 0..1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_padding: int = 0  # black pixels on each side before the crop
    crop_size: int | None = None  # None: as large as the image
    flip: bool = False
    random: bool = True  # False: the centre crop in training too


class InMemoryImages:
    """uint8 images [N, C, H, W] with int64 labels; `white` is the pixel value that becomes 1 before normalisation.

    Training crops are read out of a padded copy and its mirror image, which are made at the first augmented fetch
    and then take the place of the stored images. CIFAR-10 needs 2 x 240 MB then, for a while 150 MB more.
    """

    lazy = False
    sequential = False

    def __init__(self, images: Tensor, labels: Tensor, augment: Augment, white: int = 255) -> None:
        self.images = images
        self.labels = labels
        self.augment = augment
        self.white = white
        height, width = images.shape[2:]
        self.crop_shape = (augment.crop_size or height, augment.crop_size or width)
        mean, std = (torch.tensor(values, dtype=torch.float64) for values in (augment.mean, augment.std))
        self._scale = (1 / (white * std)).float()[:, None, None]
        self._shift = (-mean / std).float()[:, None, None]
        changes = augment.flip or augment.crop_padding > 0 or self.crop_shape != (height, width)
        self._augments = augment.random and changes
        self._padded: Tensor | None = None

    def __len__(self) -> int:
        return len(self.images)

    def fetch(self, indices: Tensor, *, seed: int = 0, epoch: int | None = None) -> tuple[Tensor, Tensor]:
        """Normalised crops [n, C, h, w] and labels: a pure function of (seed, epoch, sample) for every row."""
        samples = indices.numpy()
        if len(samples) and samples.min() < 0:
            raise IndexError(f"samples are numbered from 0, got {samples.min()}")
        if epoch is not None and self._augments:
            windows, rows = self._random_windows(samples, seed, epoch)
        else:
            windows, rows = self._centre_windows(), samples
        return self._normalise_windows(windows, rows), self.labels[indices]

    def _centre_windows(self) -> NDArray[np.uint8]:
        (height, width), (crop_height, crop_width) = self.images.shape[2:], self.crop_shape
        top, left = (height - crop_height) // 2, (width - crop_width) // 2
        return self.images.numpy()[:, :, top : top + crop_height, left : left + crop_width]

    def _random_windows(
        self, samples: NDArray[np.int64], seed: int, epoch: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """A view whose row k is the window that begins at pixel k of the padded images, and the rows of the crops."""
        padded = self._padded_images()
        count, channels, height, width = padded.shape[1:]
        crop_height, crop_width = self.crop_shape
        top = rng.integers(height - crop_height + 1, seed, epoch, TOP, samples)
        left = rng.integers(width - crop_width + 1, seed, epoch, LEFT, samples)
        mirrored = draw_flips(samples, seed, epoch) if self.augment.flip else np.zeros_like(samples)
        rows = (mirrored * count + samples) * channels * height * width + top * width + left
        last_row = padded.numel() - ((channels - 1) * height + crop_height - 1) * width - crop_width
        windows = np.lib.stride_tricks.as_strided(
            padded.numpy().reshape(-1),
            shape=(last_row + 1, channels, crop_height, crop_width),
            strides=(1, height * width, width, 1),
            writeable=False,
        )
        return windows, rows

    def _padded_images(self) -> Tensor:
        """[1 or 2, N, C, H + 2p, W + 2p]: the images within their border, and their mirror images where flipped."""
        if self._padded is None:
            count, channels, height, width = self.images.shape
            border = self.augment.crop_padding
            padded_shape = (1 + self.augment.flip, count, channels, height + 2 * border, width + 2 * border)
            padded = _allocate(padded_shape, np.uint8).zero_()
            inner = padded[..., border : border + height, border : border + width]
            inner[0] = self.images
            if self.augment.flip:
                inner.numpy()[1] = self.images.numpy()[..., ::-1]  # without a copy in between, as torch would need
            self.images = inner[0]
            self._padded = padded
        return self._padded

    def _normalise_windows(self, windows: NDArray[np.uint8], rows: NDArray[np.int64]) -> Tensor:
        inputs = _allocate((len(rows), *windows.shape[1:]), np.float32)
        for begin in range(0, len(rows), _IMAGES_PER_CHUNK):
            chunk = inputs[begin : begin + _IMAGES_PER_CHUNK]
            # numpy copies rows of pixels where torch's indexing copies pixel by pixel: five times faster
            chunk.copy_(torch.from_numpy(windows[rows[begin : begin + _IMAGES_PER_CHUNK]]))
            chunk.mul_(self._scale).add_(self._shift)
        return inputs


def _allocate(shape: tuple[int, ...], dtype: type[np.generic]) -> Tensor:
    """Allocate with numpy, which requests huge pages: page faults of torch.empty cost more than the augmentation."""
    return torch.from_numpy(np.empty(shape, dtype))


def draw_flips(samples: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.int64]:
    """1 for the samples that are mirrored in this epoch, 0 for the others."""
    return rng.integers(2, seed, epoch, FLIP, samples)
