"""Drop near-duplicates: samples whose features almost equal those of one that is kept, SemDeDup (Abbas et al. 2023)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from bigbatch import rng
from bigbatch.datasets import Dataset
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import cache, ranks
from bigbatch.filters.pipeline.features import FeatureOptions, compute_features
from bigbatch.filters.pipeline.results import Kept
from bigbatch.filters.pipeline.scoring import DropOptions, drop_largest
from bigbatch.output.progress import stage

_ROWS_AT_ONCE = 2048
_LEAST_BATCH, _BATCHES = 4096, 50  # samples per k-means batch, and number of batches
_ORDER = 207


class Config(FeatureOptions, DropOptions):
    clusters: int = Field(0, ge=0)  # duplicates are searched within a cluster; 0: one per thousand samples
    threshold: float | None = Field(None, ge=-1, le=1)  # drop all above this similarity (1 - ε); None: use `drop`
    after: None = None


def keep(dataset: Dataset, config: Config) -> Kept:
    """Section 3: k-means; within a cluster, the cosine to the most similar sample that is farther from its centre.

    A sample is dropped for a duplicate farther from the centre, so the least typical of a group is kept.
    """
    features, about = compute_features(config, dataset)
    clusters = config.clusters or max(1, len(features.values) // 1000)
    if clusters > len(features.values):
        raise Problem(
            f"clusters must be at most {len(features.values)}, the number of samples, got {clusters}: use fewer"
        )
    key_fields = {"features": features.key, "clusters": clusters, "seed": config.seed, "version": 2}

    def compute() -> cache.Arrays:
        return _compute_similarities(features.values, clusters, config.seed)

    cached = ranks.compute_on_rank_zero(lambda: cache.load_or_compute("duplicates", key_fields, compute))
    score = torch.from_numpy(cached["similarity"])
    mask = drop_largest(score, dataset, config) if config.threshold is None else score <= config.threshold
    return Kept(score, mask, {"network": about, "clusters": clusters, "threshold": config.threshold})


def _compute_similarities(features: NDArray[np.number], clusters: int, seed: int) -> cache.Arrays:
    """Compute them with one batch, then one cluster, of the features in memory at a time."""
    centres, nearest = _cluster_with_kmeans(features, clusters, seed)
    similarity = np.full(len(features), -1.0)
    with stage("duplicates", clusters) as advance:
        for cluster in range(clusters):
            members = np.flatnonzero(nearest == cluster)
            directions = _unit_vectors(features, members)
            order = np.argsort(
                directions @ centres[cluster], kind="stable"
            )  # the least typical first: it is never a duplicate
            similarity[members[order]] = _max_similarity_to_earlier(directions[order])
            advance(cluster + 1)
    return {"similarity": similarity}


def _cluster_with_kmeans(
    features: NDArray[np.number], clusters: int, seed: int
) -> tuple[NDArray[np.number], NDArray[np.int64]]:
    """Return centres and the index of the nearest one to each sample."""
    from sklearn.cluster import MiniBatchKMeans

    count, size = len(features), max(_LEAST_BATCH, 4 * clusters)
    means = MiniBatchKMeans(clusters, random_state=seed, n_init=3, batch_size=size)
    passes = max(1, -(-_BATCHES // -(-count // size)))
    with stage("clusters", (passes + 1) * count) as advance:
        for number in range(passes):
            order = rng.permutation(count, seed, number, _ORDER).numpy()
            end = count - count % size or count  # the last batch may be too small to initialise all centres
            for begin in range(0, end, size):
                means.partial_fit(_unit_vectors(features, np.sort(order[begin : begin + size])))
                advance(number * count + begin)
        nearest = np.empty(count, np.int64)
        for begin in range(0, count, size):
            rows = np.arange(begin, min(begin + size, count))
            nearest[rows] = means.predict(_unit_vectors(features, rows))
            advance(passes * count + len(rows) + begin)
    return means.cluster_centers_, nearest


def _unit_vectors(features: NDArray[np.number], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    chosen = np.asarray(features[rows], np.float32)
    lengths = np.linalg.norm(chosen, axis=1, keepdims=True)
    unit: NDArray[np.float32] = chosen / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit


def _max_similarity_to_earlier(directions: NDArray[np.float32]) -> NDArray[np.float64]:
    found = np.full(len(directions), -1.0)
    for begin in range(0, len(directions), _ROWS_AT_ONCE):
        block = directions[begin : begin + _ROWS_AT_ONCE]
        products = block @ directions[: begin + len(block)].T
        products[np.arange(len(block))[:, None] + begin <= np.arange(products.shape[1])] = -1
        found[begin : begin + len(block)] = products.max(axis=1)
    return found
