"""The images of a dataset's training samples: thumbnails in atlas pages, and single ones at full size."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from bigbatch.datasets import Dataset, Samples
from bigbatch.datasets.arrays import ArraySamples
from bigbatch.errors import Problem
from bigbatch.viewer.refused import Refused

_LONGEST_SIDE_OF_PAGE = 2048  # pixels: browsers fail on much larger ones
_LONGEST_SIDE_OF_THUMBNAIL = 64
_MOST_PER_PAGE = 1024
_MOST_PER_PAGE_DECODED = 256  # pictures in files: a page takes a second then, not half a minute
_BROKEN_GREY = 128


class Pictures(Protocol):
    """Where images are, whatever they are stored as."""

    decoded: bool  # out of files, slowly

    def size(self) -> tuple[int, int, int]:
        """Width, height and channels; of the first, where they differ."""

    def image(self, sample: int, longest_side: int | None = None) -> Image.Image:
        """As it is stored, or quickly about as small as asked for."""


class InArray:
    """uint8 [n, h, w] or [n, h, w, c]."""

    decoded = False

    def __init__(self, images: NDArray[np.uint8], white: int = 255) -> None:
        self.images, self.white = images, white

    def size(self) -> tuple[int, int, int]:
        height, width = self.images.shape[1:3]
        return width, height, self.images.shape[3] if self.images.ndim == 4 else 1

    def image(self, sample: int, longest_side: int | None = None) -> Image.Image:
        pixels = np.asarray(self.images[sample])
        if self.white != 255:
            pixels = np.minimum(pixels.astype(np.uint16) * 255 // self.white, 255).astype(np.uint8)
        return Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)


class InFiles:
    """What is decoded when it is asked for."""

    decoded = True

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def size(self) -> tuple[int, int, int]:
        width, height = self.image(0).size
        return width, height, 3

    def image(self, sample: int, longest_side: int | None = None) -> Image.Image:
        try:
            with self.samples.open(sample) as stored:
                if longest_side is not None:
                    stored.draft("RGB", (longest_side, longest_side))  # JPEG decodes at a fraction of its size
                return stored.convert("RGB")
        except (OSError, SyntaxError, ValueError, EOFError, IndexError, Image.DecompressionBombError) as error:
            raise Problem(
                f"{self.samples.describe(sample)} is not a whole image ({error}): replace or remove it"
            ) from error


class Fetched:
    """Inputs of a dataset of somebody's own: stretched from their smallest value to their largest."""

    decoded = True

    def __init__(self, samples: Samples, shape: tuple[int, ...]) -> None:
        self.samples, self.shape = samples, shape

    def size(self) -> tuple[int, int, int]:
        return self.shape[2], self.shape[1], self.shape[0]

    def image(self, sample: int, longest_side: int | None = None) -> Image.Image:
        values = self.samples.fetch(torch.tensor([sample]))[0][0].float()
        low, high = values.min(), values.max()
        pixels = ((values - low) / (high - low).clamp(min=1e-12) * 255).to(torch.uint8).permute(1, 2, 0).numpy()
        return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def of_dataset(dataset: Dataset) -> Pictures | None:
    """None where samples are no images."""
    samples: Any = dataset.train
    if isinstance(samples, ArraySamples):
        return None if samples.images is None else InArray(samples.images)
    if hasattr(samples, "open") and hasattr(samples, "describe"):
        return InFiles(samples)
    if len(dataset.sample_shape) != 3 or dataset.sample_shape[0] not in (1, 3):
        return None
    if hasattr(samples, "images") and hasattr(samples, "white"):
        return InArray(samples.images.numpy().transpose(0, 2, 3, 1), samples.white)
    return Fetched(samples, dataset.sample_shape)


@dataclass(frozen=True)
class Layout:
    """How thumbnails lie on pages: sample s is number s % per_page of page s // per_page, in reading order."""

    width: int
    height: int
    channels: int
    per_page: int
    across: int
    pages: int


class Atlas:
    """Pages by sample number, whatever the filter says: an image never belongs to another point."""

    def __init__(self, pictures: Pictures, samples: int) -> None:
        self.pictures, self.samples = pictures, samples
        full_width, full_height, channels = pictures.size()
        shrink = min(1.0, _LONGEST_SIDE_OF_THUMBNAIL / max(full_width, full_height))
        width, height = max(1, round(full_width * shrink)), max(1, round(full_height * shrink))
        if pictures.decoded:  # files differ in size and shape: a square has room for all
            width = height = max(width, height)
        most = _MOST_PER_PAGE_DECODED if pictures.decoded else _MOST_PER_PAGE
        across = min(_LONGEST_SIDE_OF_PAGE // width, int(most**0.5))
        per_page = across * min(_LONGEST_SIDE_OF_PAGE // height, int(most**0.5))
        self.layout = Layout(width, height, channels, per_page, across, -(-samples // per_page))

    def page(self, number: int) -> bytes:
        """A PNG."""
        layout = self.layout
        if not 0 <= number < layout.pages:
            raise Refused(f"there is no atlas page {number}: they are numbered 0 to {layout.pages - 1}", 404)
        first = number * layout.per_page
        count = min(layout.per_page, self.samples - first)
        rows = -(-count // layout.across)
        sheet = Image.new("L" if layout.channels == 1 else "RGB", (layout.across * layout.width, rows * layout.height))
        for place in range(count):
            down, right = divmod(place, layout.across)
            thumbnail = self._thumbnail(first + place)
            left = right * layout.width + (layout.width - thumbnail.width) // 2
            top = down * layout.height + (layout.height - thumbnail.height) // 2
            sheet.paste(thumbnail, (left, top))
        return png(sheet)

    def full(self, sample: int) -> bytes:
        """One image as it is stored, as PNG."""
        return png(self.pictures.image(sample))

    def _thumbnail(self, sample: int) -> Image.Image:
        box = (self.layout.width, self.layout.height)
        try:
            image = self.pictures.image(sample, 2 * max(box))
        except Problem:  # one broken file must not take the other thumbnails of its page away; full() names it
            return Image.new("RGB", box, (_BROKEN_GREY,) * 3)
        if image.size != box:
            image.thumbnail(box, Image.Resampling.BILINEAR)
        return image


def png(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "PNG", compress_level=1)
    return content.getvalue()
