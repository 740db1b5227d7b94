"""Drop what DBSCAN calls noise, class by class, on a map of a trained network's features (Gahlot et al. 2020)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from bigbatch.datasets import Dataset
from bigbatch.filters.pipeline import ranks
from bigbatch.filters.pipeline.decision import DecisionOptions, decide
from bigbatch.filters.pipeline.embedding import compute_map
from bigbatch.filters.pipeline.features import compute_features
from bigbatch.filters.pipeline.results import Kept
from bigbatch.filters.pipeline.source import FeatureSource, source_from_array, source_from_module
from bigbatch.trust import trust_typed


class Config(DecisionOptions):
    """`network` is the folder of a run, weights, mypkg.mod:Class, or a file of features."""


def keep(dataset: Dataset, config: Config, source: FeatureSource | None = None) -> Kept:
    """Keep the samples that are not noise; features come from `source`, else from the network that the config names."""
    features, about = compute_features(config, dataset, source)

    def filter_by_map() -> Kept:
        rows = config.selected_rows(dataset)
        labels = dataset.train.labels
        placed, how = compute_map(features, rows, config)
        # one row per training sample; NaN where an earlier filter dropped it
        points = np.full((len(labels), placed.shape[1]), np.nan, np.float32)
        points[rows] = placed
        kept = decide(points, labels.numpy(), dataset.classes, config)
        info = {"network": about, **how, **kept.info}
        return replace(kept, info=info, arrays=kept.arrays | features.predictions)

    return ranks.compute_on_rank_zero(filter_by_map)


def network(source: nn.Module | Path | str | NDArray[np.number] | Tensor, dataset: Dataset, **options: Any) -> Kept:
    """Filter a dataset by a network, the folder of a run, a file of features, or features in memory.

    Options are those of `Config`: `drop=0.1`, `mode="manual", eps=0.8`, `reducer="umap"` ... The result has a score
    (eps*: the smallest DBSCAN radius at which a sample is not noise), a mask, and in `arrays` a `map`, clusters, and
    the network's prediction, confidence and loss of each sample where its outputs are the dataset's classes.
    """
    trust_typed([source if isinstance(source, str) else None, options])
    if isinstance(source, str | Path):
        return keep(dataset, Config(network=str(source), **options))
    ready = source_from_module(source) if isinstance(source, nn.Module) else source_from_array(source)
    return keep(dataset, Config(network=ready.about["network"], **options), ready)
