"""Fashion-MNIST: 70,000 grey pictures of clothes in the format of MNIST (Xiao, Rasul, Vollgraf 2017)."""

from __future__ import annotations

from pathlib import Path

from bigbatch.datasets import Dataset
from bigbatch.datasets.reading import idx

FILES = idx.file_set(
    title="Fashion-MNIST",
    folder="FashionMNIST/raw",
    address="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    published=(
        ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
        ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
        ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
        ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
    ),
)
CLASSES = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


class Config(idx.IdxConfig):
    """The usual mean and std are .2860 and .3530."""


def load(config: Config, data_dir: Path | None = None) -> Dataset:
    """60,000 samples to train, 10,000 to test."""
    return idx.load(config, FILES, CLASSES, data_dir)
