"""Drop samples of the largest loss, by networks that did not learn from them (small-loss trick: Han et al. 2018)."""

from __future__ import annotations

import numpy as np
import torch

from bigbatch.datasets import Dataset
from bigbatch.errors import Problem
from bigbatch.filters.pipeline.features import RankedOptions, compute_features
from bigbatch.filters.pipeline.results import Kept
from bigbatch.filters.pipeline.scoring import drop_largest
from bigbatch.filters.pipeline.source import OUT_OF_FOLD


class Config(RankedOptions):
    """A network that is given is taken as it is, even if it has learned from these samples."""


def keep(dataset: Dataset, config: Config) -> Kept:
    features, about = compute_features(config, dataset)
    if "loss" not in features.predictions:
        raise Problem(
            f"network {config.network} does not predict the dataset's classes, so it has no loss: "
            f"give one that does, or use network={OUT_OF_FOLD}"
        )
    loss = features.predictions["loss"].astype(np.float64)
    score = torch.from_numpy(np.nan_to_num(loss, nan=float(np.finfo(np.float32).max)))
    return Kept(score, drop_largest(score, dataset, config), {"network": about}, dict(features.predictions))
