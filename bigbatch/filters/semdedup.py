"""Drop near-duplicates: samples whose features almost equal those of one that is kept, SemDeDup (Abbas et al. 2023)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from bigbatch.datasets import Dataset
from bigbatch.filters import _cache, _ranks
from bigbatch.filters._kept import Kept
from bigbatch.filters._progress import station
from bigbatch.filters._size import Sized, drop_largest
from bigbatch.filters._stations import FeatureOptions, features_of

_ROWS_AT_ONCE = 2048


class Config(FeatureOptions, Sized):
    clusters: int = Field(0, ge=0)  # duplicates are looked for within one; 0: one for each thousand samples
    threshold: float | None = Field(None, ge=-1, le=1)  # drop above this similarity (1 - ε), however many; else `drop`
    after: None = None


def keep(dataset: Dataset, config: Config) -> Kept:
    """Section 3: k-means; within a cluster, the cosine to the most similar sample that is farther from its centre.

    A sample is dropped for one that is farther out, so of a group of duplicates the least typical one stays.
    """
    features, about = features_of(config, dataset)
    clusters = config.clusters or max(1, len(features.rows) // 1000)
    made_from = {"features": features.key, "clusters": clusters, "seed": config.seed}

    def similarities() -> NDArray[Any]:
        made = _cache.arrays("duplicates", made_from, lambda: _similarities(features.rows, clusters, config.seed))
        return made["similarity"]

    score = torch.from_numpy(_ranks.by_the_first(similarities))
    mask = drop_largest(score, dataset, config) if config.threshold is None else score <= config.threshold
    return Kept(score, mask, {"network": about, "clusters": clusters, "threshold": config.threshold})


def _similarities(features: NDArray[Any], clusters: int, seed: int) -> dict[str, NDArray[Any]]:
    from sklearn.cluster import MiniBatchKMeans

    rows = np.asarray(features, np.float32)
    directions = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    means = MiniBatchKMeans(clusters, random_state=seed, n_init=3, batch_size=4096).fit(directions)
    similarity = np.full(len(rows), -1.0)
    with station("duplicates", clusters) as advance:
        for cluster in range(clusters):
            members = np.flatnonzero(means.labels_ == cluster)
            typical = directions[members] @ means.cluster_centers_[cluster]
            members = members[np.argsort(typical, kind="stable")]  # the least typical first: it has none to equal
            similarity[members] = _most_similar_before(directions[members])
            advance(cluster + 1)
    return {"similarity": similarity}


def _most_similar_before(directions: NDArray[np.float32]) -> NDArray[np.float64]:
    found = np.full(len(directions), -1.0)
    for begin in range(0, len(directions), _ROWS_AT_ONCE):
        block = directions[begin : begin + _ROWS_AT_ONCE]
        products = block @ directions[: begin + len(block)].T
        products[np.arange(len(block))[:, None] + begin <= np.arange(products.shape[1])] = -1
        found[begin : begin + len(block)] = products.max(axis=1)
    return found
