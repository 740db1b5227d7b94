"""Drop a fraction at random, from each class alike or over all: the control that every filter has to beat."""

from __future__ import annotations

import numpy as np
import torch

from bigbatch import rng
from bigbatch.datasets import Dataset
from bigbatch.filters.pipeline.results import Kept
from bigbatch.filters.pipeline.scoring import DropOptions, drop_largest


class Config(DropOptions):
    """`like` another filter's kept.npz: the same count of each class, or with per_class=false the same total."""


def keep(dataset: Dataset, config: Config) -> Kept:
    score = torch.from_numpy(rng.uniform(config.seed, np.arange(len(dataset.train))))
    return Kept(score, drop_largest(score, dataset, config), {"seed": config.seed})
