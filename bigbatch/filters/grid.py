"""Keep an equal fraction of every cell of a grid over the map: the stratified sampling Gahlot et al. 2020 propose."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import PositiveInt

from bigbatch import rng
from bigbatch.datasets import Dataset
from bigbatch.filters.pipeline import ranks
from bigbatch.filters.pipeline.embedding import MapOptions, compute_map
from bigbatch.filters.pipeline.features import compute_features
from bigbatch.filters.pipeline.results import Kept
from bigbatch.filters.pipeline.scoring import DropOptions, drop_largest

_RANK, _OFFSET = 203, 204


class Config(MapOptions, DropOptions):
    cells: PositiveInt = 30  # along each side of the map
    after: None = None  # it samples the map of all samples


def keep(dataset: Dataset, config: Config) -> Kept:
    """Shuffle the samples of each cell; position over count is the score, so that all cells are thinned equally."""
    features, about = compute_features(config, dataset)
    placed, how = ranks.compute_on_rank_zero(lambda: compute_map(features, np.arange(len(dataset.train)), config))
    points = placed[:, :2]
    labels = dataset.train.labels.numpy()
    cell = _assign_cells(points, config.cells) * (int(labels.max()) + 1) + (labels if config.per_class else 0)
    score = torch.from_numpy(_thinning_scores(cell, config.seed))
    info = {"network": about, **how, "cells": len(np.unique(cell))}
    return Kept(score, drop_largest(score, dataset, config), info, {"map": points, "cell": cell})


def _assign_cells(points: NDArray[np.float32], side: int) -> NDArray[np.int64]:
    low = points.min(axis=0)
    width = np.maximum((points.max(axis=0) - low) / side, np.finfo(np.float32).tiny)
    column, row = np.minimum(((points - low) / width).astype(np.int64), side - 1).T
    cell: NDArray[np.int64] = row * side + column
    return cell


def _thinning_scores(cell: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """(rank in the cell + the cell's own offset) / samples in the cell: below x for a fraction x of each cell."""
    draw = rng.uniform(seed, _RANK, np.arange(len(cell)))
    order = np.lexsort((draw, cell))
    cells, first, counts = np.unique(cell[order], return_index=True, return_counts=True)
    rank = np.arange(len(cell)) - np.repeat(first, counts)
    offset = np.repeat(rng.uniform(seed, _OFFSET, cells), counts)
    score = np.empty(len(cell))
    score[order] = (rank + offset) / np.repeat(counts, counts)
    return score
