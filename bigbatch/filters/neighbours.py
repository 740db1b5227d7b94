"""Drop samples whose nearest neighbours in feature space have other labels (edited neighbours: Wilson 1972)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from bigbatch.datasets import Dataset
from bigbatch.filters.pipeline import ranks
from bigbatch.filters.pipeline.features import compute_features
from bigbatch.filters.pipeline.neighbours import NeighbourOptions, neighbours_of_features
from bigbatch.filters.pipeline.results import Kept
from bigbatch.filters.pipeline.scoring import drop_largest


class Config(NeighbourOptions):
    """10 neighbours by default."""


def keep(dataset: Dataset, config: Config) -> Kept:
    features, about = compute_features(config, dataset)
    labels = dataset.train.labels.numpy()
    _, neighbours, distances = ranks.compute_on_rank_zero(lambda: neighbours_of_features(features, config))
    disagreement = (labels[neighbours] != labels[:, None]).mean(axis=1)
    score = torch.from_numpy(disagreement + _isolation(distances[:, -1], labels) / (2 * config.k))
    arrays = {"disagreement": disagreement} | features.predictions
    return Kept(score, drop_largest(score, dataset, config), {"network": about, "k": config.k}, arrays)


def _isolation(distance: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Rank samples in 0..1 by the distance to their k-th neighbour over the median of their class.

    Among samples with as many neighbours of other classes, the more isolated goes first.
    """
    relative = np.empty(len(labels))
    for index in np.unique(labels):
        members = labels == index
        relative[members] = distance[members] / max(np.median(distance[members]), np.finfo(np.float32).tiny)
    ranked: NDArray[np.float64] = np.argsort(np.argsort(relative, kind="stable")) / len(labels)
    return ranked
