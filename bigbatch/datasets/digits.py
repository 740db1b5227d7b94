"""scikit-learn's 1,797 handwritten digits of 8 x 8 pixels (UCI, Alpaydin and Kaynak 1998): part of the installation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from bigbatch import parts, rng
from bigbatch.datasets import Dataset, sha256
from bigbatch.datasets.reading.images import Augment, InMemoryImages

# the split is part of the dataset: it has its own key and does not move with a run's seed
_SPLIT_KEY = 1998


class Config(parts.Config):
    """Nothing to choose: 1,437 samples to train, 360 to test, pixels in 0..1."""


def load(config: Config, data_dir: Path | None = None) -> Dataset:
    """Every fifth sample of each class, in a fixed shuffled order, is a test sample."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(digits.images.astype(np.uint8))[:, None]
    labels = torch.from_numpy(digits.target.astype(np.int64))
    shuffled = rng.permutation(len(labels), _SPLIT_KEY)
    by_class = shuffled[torch.argsort(labels[shuffled], stable=True)]
    is_test = torch.zeros(len(labels), dtype=torch.bool)
    is_test[by_class[::5]] = True

    plain = Augment(mean=(0.0,), std=(1.0,))
    train = InMemoryImages(images[~is_test], labels[~is_test], plain, white=16)
    test = InMemoryImages(images[is_test], labels[is_test], plain, white=16)
    return Dataset(
        train=train,
        test=test,
        classes=tuple(str(name) for name in digits.target_names),
        sample_shape=(1, 8, 8),
        hash=sha256(train.images, train.labels),
    )
