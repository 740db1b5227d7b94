"""Augmented CIFAR-10 images a CPU second: bigbatch over torch.utils.data.DataLoader with per-sample transforms.

Both pad by 4, crop 32 x 32 at random, mirror half of the images and normalise, on one thread in one process. They
take turns and CPU seconds are counted, so that a busy machine slows both alike. The DataLoader runs torchvision's
sequence of transforms written in plain torch: pad, crop, flip, to float, normalise, then the default collate; no
Pillow in between, which favours it.

    python benchmarks/input.py [--images 50000] [--global-batch 4096] [--rounds 15]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from bigbatch import parts
from bigbatch.datasets import load
from bigbatch.datasets.reading.download import data_folders
from bigbatch.datasets.reading.images import Augment, InMemoryImages

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
REQUIRED_RATIO = 10.0
IMAGES_PER_TURN = 4096


class PerSample(Dataset[tuple[Tensor, int]]):
    """The usual way: one image at a time."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels.tolist()
        self.mean, self.std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        padded = functional.pad(self.images[index], (4, 4, 4, 4))
        top, left = torch.randint(9, (2,)).tolist()
        image = padded[:, top : top + 32, left : left + 32]
        if torch.rand(1) < 0.5:
            image = image.flip(-1)
        return image.float().div(255).sub(self.mean).div_(self.std), self.labels[index]


def read_images(count: int) -> tuple[Tensor, Tensor, str]:
    """Real images where they are on this machine; the work is the same for made-up ones."""
    if any((folder / "cifar-10-batches-bin").is_dir() for folder in data_folders(None)):
        train = load(parts.configure("datasets", "cifar10")).train
        assert isinstance(train, InMemoryImages)
        return train.images[:count].clone(), train.labels[:count], "real CIFAR-10 images"
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return images, torch.arange(count) % 10, "synthetic 32 x 32 images"


def bigbatch_batches(samples: InMemoryImages, global_batch: int) -> Iterator[Tensor]:
    """Shuffled epochs without end."""
    epoch = 0
    while True:
        for indices in torch.randperm(len(samples)).split(global_batch):
            yield samples.fetch(indices, seed=0, epoch=epoch)[0]
        epoch += 1


def dataloader_batches(images: Tensor, labels: Tensor, global_batch: int) -> Iterator[Tensor]:
    """Shuffled epochs without end."""
    loader = DataLoader(PerSample(images, labels), batch_size=global_batch, shuffle=True, num_workers=0)
    while True:
        for inputs, _ in loader:
            yield inputs


def images_per_cpu_second(batches: Iterator[Tensor], images: int) -> float:
    """Over the first batches that hold that many images."""
    begin, seen = time.process_time(), 0
    while seen < images:
        seen += len(next(batches))
    return seen / (time.process_time() - begin)


def main() -> None:
    """Prints both speeds and the median of the ratios of all turns."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--global-batch", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)

    images, labels, used = read_images(options.images)
    augment = Augment(MEAN, STD, crop_padding=4, flip=True)
    ours = bigbatch_batches(InMemoryImages(images, labels, augment), options.global_batch)
    peer = dataloader_batches(images.clone(), labels, options.global_batch)
    next(ours), next(peer)  # the padded copies are made, and kernels are warm
    speeds = [
        (images_per_cpu_second(ours, 8 * IMAGES_PER_TURN), images_per_cpu_second(peer, IMAGES_PER_TURN))
        for _ in range(options.rounds)
    ]
    ratios = sorted(ours / peer for ours, peer in speeds)

    print(f"crop, flip, normalise: {len(images):,} {used}, global batch {options.global_batch}, one thread")
    print(f"bigbatch                        {statistics.median(s[0] for s in speeds):>10,.0f} images per CPU second")
    print(f"DataLoader, per-sample, 0 workers {statistics.median(s[1] for s in speeds):>8,.0f} images per CPU second")
    spread = f"median of {options.rounds} rounds, {ratios[0]:.1f} to {ratios[-1]:.1f}"
    print(f"ratio {statistics.median(ratios):.1f} ({spread}); required: {REQUIRED_RATIO:.0f}")


if __name__ == "__main__":
    main()
