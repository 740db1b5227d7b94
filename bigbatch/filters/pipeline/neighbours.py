"""Exact nearest neighbours: faiss where installed, else torch a block of rows at a time."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from bigbatch.libraries import import_library, is_installed
from bigbatch.output.progress import stage

_BLOCK_BYTES = 128 << 20


def nearest_neighbours(
    points: NDArray[np.float32], count: int, jobs: int = 1, engine: str | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return each point's `count` nearest others, nearest first, and their distances. `engine` is faiss or torch."""
    points = np.ascontiguousarray(points, np.float32)
    use_faiss = is_installed("faiss") if engine is None else engine == "faiss"
    squared, neighbours = (_search_with_faiss if use_faiss else _search_with_torch)(points, count + 1, jobs)
    others = neighbours != np.arange(len(points))[:, None]
    others[others.all(axis=1), -1] = False  # among many duplicates a point may miss itself: the farthest goes instead
    shape = (len(points), count)
    return neighbours[others].reshape(shape), np.sqrt(np.maximum(squared[others], 0)).reshape(shape)


def _search_with_faiss(
    points: NDArray[np.float32], count: int, jobs: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    faiss = import_library("faiss", "the exact search")
    index = faiss.IndexFlatL2(points.shape[1])
    index.add(points)
    squared = np.empty((len(points), count), np.float32)
    neighbours = np.empty((len(points), count), np.int64)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(jobs)
    try:
        with stage("neighbours", len(points)) as advance:
            for begin in range(0, len(points), 4096):
                block = slice(begin, begin + 4096)
                squared[block], neighbours[block] = index.search(points[block], count)
                advance(min(begin + 4096, len(points)))
    finally:
        faiss.omp_set_num_threads(threads)
    return squared, neighbours


def _search_with_torch(
    points: NDArray[np.float32], count: int, jobs: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """|x|² + |y|² - 2xy about the mean, where least digits are lost."""
    centred = torch.from_numpy(points - points.mean(axis=0))
    norms = centred.square().sum(1)
    rows = max(1, _BLOCK_BYTES // (4 * len(points)))
    squared, neighbours = [], []
    with stage("neighbours", len(points)) as advance:
        for block, block_norms in zip(centred.split(rows), norms.split(rows), strict=True):
            distances = torch.addmm(norms, block, centred.T, alpha=-2).add_(block_norms[:, None])
            near = distances.topk(count, largest=False)
            squared.append(near.values)
            neighbours.append(near.indices)
            advance(sum(len(piece) for piece in squared))
    return torch.cat(squared).numpy(), torch.cat(neighbours).numpy()
