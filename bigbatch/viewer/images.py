"""The images of a dataset's training samples: thumbnails in atlas pages, and single images at full size."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from bigbatch.datasets import Dataset, Samples
from bigbatch.datasets.arrays import ArraySamples
from bigbatch.errors import Problem
from bigbatch.viewer.requests import RequestError

_MAX_PAGE_SIDE = 2048  # pixels: browsers fail on much larger images
_MAX_THUMBNAIL_SIDE = 64
_MAX_PER_PAGE = 1024
_MAX_PER_PAGE_DECODED = 256  # images in files: a page then takes a second, not half a minute
_BROKEN_GREY = 128


@runtime_checkable
class EncodedSamples(Protocol):
    """Samples whose images are decoded when they are opened."""

    def open(self, sample: int) -> Image.Image: ...

    def describe(self, sample: int) -> str: ...


@runtime_checkable
class PixelSamples(Protocol):
    """Samples whose images are in memory."""

    images: Tensor  # uint8 [n, channels, height, width]
    white: int  # the value of a white pixel


class ImageSource(Protocol):
    """The images of a dataset, however they are stored."""

    decoded: bool  # from files, which is slow

    def size(self) -> tuple[int, int, int]:
        """Width, height and channels; those of the first image where they differ."""

    def load_image(self, sample: int, longest_side: int | None = None) -> Image.Image:
        """Return the stored image, or quickly one of about this size."""


class ArrayImages:
    """Images in an array: uint8 [n, height, width] or [n, height, width, channels]."""

    decoded = False

    def __init__(self, images: NDArray[np.uint8], white: int = 255) -> None:
        self.images, self.white = images, white

    def size(self) -> tuple[int, int, int]:
        height, width = self.images.shape[1:3]
        return width, height, self.images.shape[3] if self.images.ndim == 4 else 1

    def load_image(self, sample: int, longest_side: int | None = None) -> Image.Image:
        pixels = np.asarray(self.images[sample])
        if self.white != 255:
            pixels = np.minimum(pixels.astype(np.uint16) * 255 // self.white, 255).astype(np.uint8)
        return _image_from_pixels(pixels)


class DecodedImages:
    """Images that are decoded when they are needed."""

    decoded = True

    def __init__(self, samples: EncodedSamples) -> None:
        self.samples = samples

    def size(self) -> tuple[int, int, int]:
        return *self.load_image(0).size, 3

    def load_image(self, sample: int, longest_side: int | None = None) -> Image.Image:
        try:
            with self.samples.open(sample) as stored:
                if longest_side is not None:
                    stored.draft("RGB", (longest_side, longest_side))  # JPEG decodes at a fraction of its size
                return stored.convert("RGB")
        except (OSError, SyntaxError, ValueError, EOFError, IndexError, Image.DecompressionBombError) as error:
            raise Problem(
                f"{self.samples.describe(sample)} is not a complete image ({error}): replace or remove it"
            ) from error


class InputImages:
    """Model inputs of a custom dataset, scaled from their smallest value to their largest."""

    decoded = True

    def __init__(self, samples: Samples, shape: tuple[int, ...]) -> None:
        self.samples, self.shape = samples, shape

    def size(self) -> tuple[int, int, int]:
        return self.shape[2], self.shape[1], self.shape[0]

    def load_image(self, sample: int, longest_side: int | None = None) -> Image.Image:
        values = self.samples.fetch(torch.tensor([sample]))[0][0].float()
        low, high = values.min(), values.max()
        pixels = ((values - low) / (high - low).clamp(min=1e-12) * 255).to(torch.uint8).permute(1, 2, 0)
        return _image_from_pixels(pixels.numpy())


def _image_from_pixels(pixels: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)


def find_images(dataset: Dataset) -> ImageSource | None:
    """Return the images of the training samples, or None where samples are not images."""
    samples = dataset.train
    if isinstance(samples, ArraySamples):
        return None if samples.images is None else ArrayImages(samples.images)
    if isinstance(samples, EncodedSamples):
        return DecodedImages(samples)
    if len(dataset.sample_shape) != 3 or dataset.sample_shape[0] not in (1, 3):
        return None
    if isinstance(samples, PixelSamples):
        return ArrayImages(samples.images.numpy().transpose(0, 2, 3, 1), samples.white)
    return InputImages(samples, dataset.sample_shape)


@dataclass(frozen=True)
class AtlasLayout:
    """How thumbnails lie on pages: sample s is thumbnail s % per_page of page s // per_page, row by row."""

    width: int
    height: int
    channels: int
    per_page: int
    across: int
    pages: int


class ThumbnailAtlas:
    """Pages of thumbnails in the order of sample numbers, so that they do not depend on the filter."""

    def __init__(self, images: ImageSource, samples: int) -> None:
        self.images, self.samples = images, samples
        full_width, full_height, channels = images.size()
        shrink = min(1.0, _MAX_THUMBNAIL_SIDE / max(full_width, full_height))
        width, height = max(1, round(full_width * shrink)), max(1, round(full_height * shrink))
        if images.decoded:  # files differ in shape: a square fits all
            width = height = max(width, height)
        limit = _MAX_PER_PAGE_DECODED if images.decoded else _MAX_PER_PAGE
        across = min(_MAX_PAGE_SIDE // width, int(limit**0.5))
        per_page = across * min(_MAX_PAGE_SIDE // height, int(limit**0.5))
        self.layout = AtlasLayout(width, height, channels, per_page, across, -(-samples // per_page))

    def page_png(self, number: int) -> bytes:
        layout = self.layout
        if not 0 <= number < layout.pages:
            raise RequestError(f"there is no atlas page {number}: they are numbered 0 to {layout.pages - 1}", 404)
        first = number * layout.per_page
        count = min(layout.per_page, self.samples - first)
        rows = -(-count // layout.across)
        sheet = Image.new("L" if layout.channels == 1 else "RGB", (layout.across * layout.width, rows * layout.height))
        for place in range(count):
            down, right = divmod(place, layout.across)
            thumbnail = self._make_thumbnail(first + place)
            left = right * layout.width + (layout.width - thumbnail.width) // 2
            top = down * layout.height + (layout.height - thumbnail.height) // 2
            sheet.paste(thumbnail, (left, top))
        return _encode_png(sheet)

    def image_png(self, sample: int) -> bytes:
        """Return one image at full size."""
        return _encode_png(self.images.load_image(sample))

    def _make_thumbnail(self, sample: int) -> Image.Image:
        box = (self.layout.width, self.layout.height)
        try:
            image = self.images.load_image(sample, 2 * max(box))
        except Problem:  # one broken file must not hide the other thumbnails of its page; image_png names it
            return Image.new("RGB", box, (_BROKEN_GREY,) * 3)
        if image.size != box:
            image.thumbnail(box, Image.Resampling.BILINEAR)
        return image


def _encode_png(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "PNG", compress_level=1)
    return content.getvalue()
