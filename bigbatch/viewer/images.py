"""The images of a dataset's training samples: thumbnails in sprites, and single images at full size."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

from bigbatch.datasets import Dataset
from bigbatch.datasets.arrays import ArraySamples
from bigbatch.datasets.reading.images import InMemoryImages
from bigbatch.datasets.reading.lazy_images import LazyImages, check_pixels
from bigbatch.errors import Problem

_MAX_THUMBNAIL_SIDE = 64
_ACROSS = 16
_PER_SPRITE = 256
_PER_SPRITE_DECODED = 48  # images in files: a sprite then takes a fraction of a second
_BROKEN_GREY = 128


def load_image(dataset: Dataset, sample: int, longest_side: int | None = None) -> Image.Image:
    """Return the stored image of a training sample; an image in a file, where asked, quickly at about this size."""
    samples = dataset.train
    if isinstance(samples, LazyImages):
        try:
            with samples.open(sample) as stored:
                if longest_side is not None:
                    stored.draft("RGB", (longest_side, longest_side))  # JPEG decodes at a fraction of its size
                check_pixels(stored)
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
class SpriteLayout:
    """How thumbnails lie on a sprite: row by row, in the order asked for."""

    width: int
    height: int
    across: int
    per_sprite: int
    shrunk: bool  # whether the images themselves are larger


class Thumbnails:
    """Small images of samples. A sprite has those of many samples, so that a screenful takes one or two requests."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        samples, shape = dataset.train, dataset.sample_shape
        if (isinstance(samples, ArraySamples) and samples.images is None) or len(shape) != 3 or shape[0] not in (1, 3):
            raise Problem("samples of this dataset have none.")
        first = load_image(dataset, 0)
        self.mode = "L" if first.mode == "L" else "RGB"
        shrink = min(1.0, _MAX_THUMBNAIL_SIDE / max(first.size))
        width, height = (max(1, round(side * shrink)) for side in first.size)
        in_memory = isinstance(samples, ArraySamples | InMemoryImages)
        if not in_memory:
            width = height = max(width, height)  # files differ in shape: a square fits all
        per_sprite = _PER_SPRITE if in_memory else _PER_SPRITE_DECODED
        self.layout = SpriteLayout(width, height, _ACROSS, per_sprite, shrunk=shrink < 1 or not in_memory)

    def encode_sprite_png(self, samples: Sequence[int]) -> bytes:
        layout = self.layout
        rows = -(-len(samples) // layout.across)
        sheet = Image.new(self.mode, (min(len(samples), layout.across) * layout.width, rows * layout.height))
        for place, sample in enumerate(samples):
            down, right = divmod(place, layout.across)
            thumbnail = self._make_thumbnail(sample)
            left = right * layout.width + (layout.width - thumbnail.width) // 2
            top = down * layout.height + (layout.height - thumbnail.height) // 2
            sheet.paste(thumbnail, (left, top))
        return _encode_png(sheet)

    def encode_full_size_png(self, sample: int) -> bytes:
        """Return one image at full size."""
        return _encode_png(load_image(self.dataset, sample))

    def _make_thumbnail(self, sample: int) -> Image.Image:
        box = (self.layout.width, self.layout.height)
        try:
            image = load_image(self.dataset, sample, 2 * max(box))
        except Problem:  # one broken file must not hide the other thumbnails; encode_full_size_png names it
            return Image.new("RGB", box, (_BROKEN_GREY,) * 3)
        if image.size != box:
            image.thumbnail(box, Image.Resampling.BILINEAR)
        return image


def _encode_png(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "PNG", compress_level=1)
    return content.getvalue()
