"""Drop a fraction at random, from each class alike or over all: the control that every filter has to beat."""

from __future__ import annotations

import numpy as np
import torch
from pydantic import Field

from bigbatch import keyed, parts
from bigbatch.datasets import Dataset
from bigbatch.filters import Kept


class Config(parts.Config):
    drop: float = Field(0.1, ge=0, lt=1)  # the fraction dropped
    per_class: bool = True
    seed: int = Field(0, ge=0)


def keep(dataset: Dataset, config: Config) -> Kept:
    labels = dataset.train.labels
    score = torch.from_numpy(keyed.uniform(config.seed, np.arange(len(labels))))
    mask = torch.ones(len(labels), dtype=torch.bool)
    groups = [labels == label for label in labels.unique()] if config.per_class else [torch.ones_like(mask)]
    for group in groups:
        members = group.nonzero().squeeze(1)
        dropped = round(config.drop * len(members))
        mask[members[score[members].argsort(descending=True, stable=True)[:dropped]]] = False
    return Kept(score, mask, {"drop": config.drop, "per_class": config.per_class, "seed": config.seed})
