"""Random images in the shapes of CIFAR-10 and MNIST, so that benchmarks need no download."""

from __future__ import annotations

import torch

from bigbatch.datasets import Dataset
from bigbatch.datasets.reading.images import Augment, InMemoryImages


def images(channels: int, size: int, count: int) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, channels, size, size), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 10, (count,), generator=generator)
    plain = Augment(mean=(0.5,) * channels, std=(0.25,) * channels)
    samples = InMemoryImages(pixels, labels, plain)
    return Dataset(samples, samples, tuple("0123456789"), (channels, size, size), hash="synthetic")


def cifar(count: int = 2048) -> Dataset:
    return images(3, 32, count)


def mnist(count: int = 8192) -> Dataset:
    return images(1, 28, count)
