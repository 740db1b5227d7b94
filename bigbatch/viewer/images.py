"""The images of a dataset's training samples: thumbnails in atlas pages, and single images at full size."""

from __future__ import annotations

import io
from dataclasses import dataclass
from math import isqrt

import numpy as np
import torch
from PIL import Image

from bigbatch.datasets import Dataset
from bigbatch.datasets.arrays import ArraySamples
from bigbatch.datasets.reading.images import InMemoryImages
from bigbatch.datasets.reading.lazy_images import LazyImages
from bigbatch.errors import Problem
from bigbatch.viewer.requests import RequestError

_MAX_PAGE_SIDE = 2048  # pixels: browsers fail on much larger images
_MAX_THUMBNAIL_SIDE = 64
_MAX_PER_PAGE = 1024
_MAX_PER_PAGE_DECODED = 256  # images in files: a page then takes a second, not half a minute
_BROKEN_GREY = 128


def load_image(dataset: Dataset, sample: int, longest_side: int | None = None) -> Image.Image:
    """Return the stored image of a training sample; an image in a file, where asked, quickly at about this size."""
    samples = dataset.train
    if isinstance(samples, LazyImages):
        try:
            with samples.open(sample) as stored:
                if longest_side is not None:
                    stored.draft("RGB", (longest_side, longest_side))  # JPEG decodes at a fraction of its size
                return stored.convert("RGB")
        except (OSError, SyntaxError, ValueError, EOFError, IndexError, Image.DecompressionBombError) as error:
            raise Problem(
                f"{samples.describe(sample)} is not a complete image ({error}): replace or remove it"
            ) from error
    if isinstance(samples, ArraySamples) and samples.images is not None:
        pixels = np.asarray(samples.images[sample])
    elif isinstance(samples, InMemoryImages):
        pixels = samples.images.numpy()[sample].transpose(1, 2, 0)
        if samples.white != 255:
            pixels = np.minimum(pixels.astype(np.uint16) * 255 // samples.white, 255).astype(np.uint8)
    else:  # inputs of a custom dataset, scaled from their smallest value to their largest
        values = samples.fetch(torch.tensor([sample]))[0][0].float()
        low, high = values.min(), values.max()
        pixels = ((values - low) / (high - low).clamp(min=1e-12) * 255).to(torch.uint8).permute(1, 2, 0).numpy()
    return Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)


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

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        samples, shape = dataset.train, dataset.sample_shape
        if (isinstance(samples, ArraySamples) and samples.images is None) or len(shape) != 3 or shape[0] not in (1, 3):
            raise Problem("samples of this dataset have none.")
        first = load_image(dataset, 0)
        shrink = min(1.0, _MAX_THUMBNAIL_SIDE / max(first.size))
        width, height = (max(1, round(side * shrink)) for side in first.size)
        side_limit = isqrt(_MAX_PER_PAGE)
        if not isinstance(samples, ArraySamples | InMemoryImages):
            width = height = max(width, height)  # files differ in shape: a square fits all
            side_limit = isqrt(_MAX_PER_PAGE_DECODED)
        across = min(_MAX_PAGE_SIDE // width, side_limit)
        per_page = across * min(_MAX_PAGE_SIDE // height, side_limit)
        channels = 1 if first.mode == "L" else 3
        self.layout = AtlasLayout(width, height, channels, per_page, across, -(-len(samples) // per_page))

    def page_png(self, number: int) -> bytes:
        layout = self.layout
        if not 0 <= number < layout.pages:
            raise RequestError(f"there is no atlas page {number}: they are numbered 0 to {layout.pages - 1}", 404)
        first = number * layout.per_page
        count = min(layout.per_page, len(self.dataset.train) - first)
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
        return _encode_png(load_image(self.dataset, sample))

    def _make_thumbnail(self, sample: int) -> Image.Image:
        box = (self.layout.width, self.layout.height)
        try:
            image = load_image(self.dataset, sample, 2 * max(box))
        except Problem:  # one broken file must not hide the other thumbnails of its page; image_png names it
            return Image.new("RGB", box, (_BROKEN_GREY,) * 3)
        if image.size != box:
            image.thumbnail(box, Image.Resampling.BILINEAR)
        return image


def _encode_png(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "PNG", compress_level=1)
    return content.getvalue()
