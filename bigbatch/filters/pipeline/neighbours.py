"""Each point's nearest others: exact up to 200,000 points, above that in FAISS's inverted lists, if it is installed.

The exact search grows with the square of the points. The inverted lists (IVF) hold the points by their nearest of
4·√n centres; a search looks into a sixteenth of the lists. They are the same in any number of threads; the links of a
graph (HNSW) depend on which thread comes first.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import PositiveInt

from bigbatch.datasets.reading.hashing import hash_array
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import cache, ranks
from bigbatch.filters.pipeline.features import Features, RankedOptions
from bigbatch.filters.pipeline.pca import Points, principal_components
from bigbatch.libraries import import_library, is_installed
from bigbatch.output.progress import stage

MAX_EXACT_POINTS = 200_000
_LISTS_SEARCHED = 1 / 16  # the fraction of the inverted lists
_POINTS_PER_CENTRE = 64  # that the centres are learned from
_QUERIES_AT_ONCE = 4096
_BLOCK_BYTES = 128 << 20

Indices = NDArray[np.int64]


class NeighbourOptions(RankedOptions):
    """How many neighbours, among which components of the features."""

    k: PositiveInt = 10
    components: PositiveInt = 50


def nearest_neighbours(points: Points, count: int, jobs: int = 1, engine: str | None = None) -> tuple[Indices, Points]:
    """Return each point's `count` nearest others, nearest first, and their distances.

    `engine` is faiss, used where installed unless there is a GPU, or torch, which is exact whatever the size.
    """
    points = np.ascontiguousarray(points, np.float32)
    use_torch = engine == "torch" or (engine is None and (ranks.device().type == "cuda" or not is_installed("faiss")))
    squared, neighbours = (_search_with_torch if use_torch else _search_with_faiss)(points, count + 1, jobs)
    others = neighbours != np.arange(len(points))[:, None]
    others[others.all(axis=1), -1] = False  # among many duplicates a point may miss itself: the farthest goes instead
    shape = (len(points), count)
    return neighbours[others].reshape(shape), np.sqrt(np.maximum(squared[others], 0)).reshape(shape)


def neighbours_of_features(features: Features, options: NeighbourOptions) -> tuple[Points, Indices, Points]:
    """Return principal components, and each sample's nearest neighbours and distances among them. All are cached."""
    points, _ = principal_components(features, np.arange(len(features.values)), options.components)
    if options.k >= len(points):
        raise Problem(f"k must be below {len(points)}, the number of samples, got {options.k}: use a smaller one")
    key_fields = {"points": hash_array(points), "k": options.k, "exact": len(points) <= MAX_EXACT_POINTS}

    def search() -> cache.Arrays:
        neighbours, distances = nearest_neighbours(points, options.k)
        return {"neighbours": neighbours, "distances": distances}

    found = cache.load_or_compute("neighbours", key_fields, search)
    return points, found["neighbours"], found["distances"]


def _search_with_faiss(points: Points, count: int, jobs: int) -> tuple[Points, Indices]:
    faiss = import_library("faiss", "the search for neighbours")
    squared = np.empty((len(points), count), np.float32)
    neighbours = np.empty((len(points), count), np.int64)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(jobs)
    try:
        index = faiss.IndexFlatL2(points.shape[1])
        if len(points) > MAX_EXACT_POINTS:
            lists = int(4 * math.sqrt(len(points)))
            index = faiss.IndexIVFFlat(index, points.shape[1], lists)
            index.nprobe = max(1, int(_LISTS_SEARCHED * lists))
            index.cp.max_points_per_centroid = _POINTS_PER_CENTRE
            index.train(points)
        index.add(points)
        with stage("neighbours", len(points)) as advance:
            for begin in range(0, len(points), _QUERIES_AT_ONCE):
                block = slice(begin, begin + _QUERIES_AT_ONCE)
                squared[block], neighbours[block] = index.search(points[block], count)
                advance(min(block.stop, len(points)))
    finally:
        faiss.omp_set_num_threads(threads)
    return squared, neighbours


def _search_with_torch(points: Points, count: int, jobs: int) -> tuple[Points, Indices]:
    """|x|² + |y|² - 2xy about the mean, where least digits are lost, a block of rows at a time; on the GPU if any."""
    centred = torch.from_numpy(points - points.mean(axis=0)).to(ranks.device())
    norms = centred.square().sum(1)
    rows = max(1, _BLOCK_BYTES // (4 * len(points)))
    squared, neighbours = [], []
    with stage("neighbours", len(points)) as advance:
        for block, block_norms in zip(centred.split(rows), norms.split(rows), strict=True):
            distances = torch.addmm(norms, block, centred.T, alpha=-2).add_(block_norms[:, None])
            near = distances.topk(count, largest=False)
            squared.append(near.values.cpu())
            neighbours.append(near.indices.cpu())
            advance(sum(len(piece) for piece in squared))
    return torch.cat(squared).numpy(), torch.cat(neighbours).numpy()
