"""Crops, flips and normalisation of whole batches, against the obvious way to do it one image at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bigbatch import rng
from bigbatch.datasets.reading.images import FLIP, LEFT, TOP, Augment, InMemoryImages

MEAN, STD = (0.5, 0.25, 0.125), (0.5, 0.25, 2.0)


def made_up(augment: Augment, count: int = 600, height: int = 6, width: int = 5, white: int = 255) -> InMemoryImages:
    pixels = rng.integers(white + 1, 1, np.arange(count * 3 * height * width)).astype(np.uint8)
    images = torch.from_numpy(pixels).view(count, 3, height, width)
    return InMemoryImages(images, torch.arange(count) % 7, augment, white)


def one_at_a_time(images: Tensor, sample: int, augment: Augment, seed: int, epoch: int) -> Tensor:
    """Pad, crop, flip, to float, normalise: as everybody writes it."""
    padded = functional.pad(images[sample], (augment.crop_padding,) * 4)
    if augment.flip and rng.integers(2, seed, epoch, FLIP, sample)[0]:
        padded = padded.flip(-1)
    height, width = augment.crop_size or images.shape[2], augment.crop_size or images.shape[3]
    top = int(rng.integers(padded.shape[1] - height + 1, seed, epoch, TOP, sample)[0])
    left = int(rng.integers(padded.shape[2] - width + 1, seed, epoch, LEFT, sample)[0])
    crop = padded[:, top : top + height, left : left + width].double() / 255
    return ((crop - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]).float()


@pytest.mark.parametrize(
    "augment",
    [
        Augment(MEAN, STD, crop_padding=2, flip=True),
        Augment(MEAN, STD, crop_padding=2),
        Augment(MEAN, STD, crop_size=4, flip=True),
        Augment(MEAN, STD, crop_size=3),
        Augment(MEAN, STD, flip=True),
        Augment(MEAN, STD, crop_padding=1, crop_size=4, flip=True),
    ],
)
def test_a_batch_is_what_one_image_at_a_time_gives(augment: Augment) -> None:
    samples = made_up(augment)
    images = samples.images.clone()
    indices = rng.permutation(600, 3)  # more than two chunks, and both the first and the last image
    inputs, labels = samples.fetch(indices, seed=5, epoch=2)
    expected = torch.stack([one_at_a_time(images, sample, augment, 5, 2) for sample in indices.tolist()])
    torch.testing.assert_close(inputs, expected)
    assert torch.equal(labels, indices % 7)


def test_rows_do_not_depend_on_their_batch() -> None:
    samples = made_up(Augment(MEAN, STD, crop_padding=2, flip=True))
    whole = samples.fetch(torch.arange(600), seed=1, epoch=4)[0]
    order = rng.permutation(600, 9)
    pieces = torch.cat([samples.fetch(piece, seed=1, epoch=4)[0] for piece in order.split(7)])
    assert torch.equal(pieces, whole[order])


def test_seed_and_epoch_both_change_the_crops() -> None:
    samples = made_up(Augment(MEAN, STD, crop_padding=2, flip=True))
    some = torch.arange(50)
    once = samples.fetch(some, seed=1, epoch=0)[0]
    assert torch.equal(once, samples.fetch(some, seed=1, epoch=0)[0])
    assert not torch.equal(once, samples.fetch(some, seed=2, epoch=0)[0])
    assert not torch.equal(once, samples.fetch(some, seed=1, epoch=1)[0])


def test_every_offset_and_both_sides_are_about_equally_frequent() -> None:
    # one white pixel in the middle of 3 x 3, padded by 1: where it ends up tells the offset; 9 offsets, flip unseen
    images = torch.zeros(9000, 1, 3, 3, dtype=torch.uint8)
    images[:, :, 1, 1] = 255
    samples = InMemoryImages(images, torch.zeros(9000, dtype=torch.int64), Augment((0.0,), (1.0,), crop_padding=1))
    counts = samples.fetch(torch.arange(9000), seed=0, epoch=0)[0].sum(dim=(0, 1)).flatten()
    assert counts.sum() == 9000
    assert (counts - 1000).abs().max() < 120  # four standard deviations of a binomial count
    images = torch.zeros(9000, 1, 1, 2, dtype=torch.uint8)
    images[..., 0] = 255
    samples = InMemoryImages(images, torch.zeros(9000, dtype=torch.int64), Augment((0.0,), (1.0,), flip=True))
    assert abs(samples.fetch(torch.arange(9000), seed=0, epoch=0)[0][..., 0].sum() - 4500) < 190


def test_plain_fetch_is_the_centre_and_the_same_before_and_after_augmentation() -> None:
    # pixels 0..24 of 5 x 5; the middle 3 x 3 begins at row 1, column 1
    images = torch.arange(25, dtype=torch.uint8).view(1, 1, 5, 5)
    augment = Augment((0.5,), (0.25,), crop_padding=2, crop_size=3, flip=True)
    samples = InMemoryImages(images, torch.tensor([3]), augment, white=20)
    # (6 / 20 - 0.5) / 0.25 = -0.8 at the upper left, (18 / 20 - 0.5) / 0.25 = 1.6 at the lower right
    before = samples.fetch(torch.tensor([0]))[0]
    assert before[0, 0, 0, 0].item() == pytest.approx(-0.8)
    assert before[0, 0, 2, 2].item() == pytest.approx(1.6)
    samples.fetch(torch.tensor([0]), epoch=0)
    assert torch.equal(samples.fetch(torch.tensor([0]))[0], before)
    assert torch.equal(samples.images, images)


def test_without_augmentation_nothing_is_copied() -> None:
    samples = made_up(Augment(MEAN, STD, crop_size=4, crop_padding=2, flip=True, random=False))
    where = samples.images.data_ptr()
    assert torch.equal(samples.fetch(torch.arange(9), epoch=3)[0], samples.fetch(torch.arange(9))[0])
    assert samples.images.data_ptr() == where


def test_stored_images_move_into_the_padded_copy() -> None:
    samples = made_up(Augment(MEAN, STD, crop_padding=2, flip=True))
    samples.fetch(torch.arange(3), epoch=0)
    assert samples.images.untyped_storage().nbytes() == 2 * 600 * 3 * (6 + 4) * (5 + 4)  # 2 x 240 MB for CIFAR-10


def test_no_indices_give_no_rows_of_the_right_shape() -> None:
    samples = made_up(Augment(MEAN, STD, crop_padding=2, flip=True))
    inputs, labels = samples.fetch(torch.tensor([], dtype=torch.int64), epoch=0)
    assert inputs.shape == (0, 3, 6, 5)
    assert labels.shape == (0,)


def test_a_negative_number_is_no_sample() -> None:
    with pytest.raises(IndexError, match="got -1"):
        made_up(Augment(MEAN, STD, crop_padding=2)).fetch(torch.tensor([3, -1]), epoch=0)
