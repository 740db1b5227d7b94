"""Keep everything: the control that a filter is compared with first (Gahlot et al. 2020 call it Full)."""

from __future__ import annotations

import torch

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.filters.pipeline.results import Kept


class Config(parts.Config):
    """Nothing to choose."""


def keep(dataset: Dataset, config: Config) -> Kept:
    return Kept(torch.zeros(len(dataset.train)), torch.ones(len(dataset.train), dtype=torch.bool))
