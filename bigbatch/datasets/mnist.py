"""MNIST: 70,000 handwritten digits of 28 x 28 pixels (LeCun, Cortes, Burges 1998)."""

from __future__ import annotations

from pathlib import Path

from bigbatch.datasets import Dataset
from bigbatch.datasets.reading import idx

FILES = idx.file_set(
    title="MNIST",
    folder="MNIST/raw",
    address="https://ossci-datasets.s3.amazonaws.com/mnist/",  # the original server no longer has the files
    published=(
        ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
        ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
        ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
        ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
    ),
)


class Config(idx.IdxConfig):
    """Pixels in 0..1 and nothing augmented, as in the LEGW paper. The usual mean and std are .1307 and .3081."""


def load(config: Config, data_dir: Path | None = None) -> Dataset:
    """60,000 samples to train, 10,000 to test."""
    return idx.load(config, FILES, tuple(str(digit) for digit in range(10)), data_dir)
