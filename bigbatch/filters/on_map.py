"""Drop what DBSCAN calls noise, class by class, on a map given in an .npz file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bigbatch.datasets import Dataset
from bigbatch.datasets.arrays import read_map
from bigbatch.datasets.reading.hashing import hash_array
from bigbatch.filters.pipeline.decision import DecisionOptions, decide
from bigbatch.filters.pipeline.results import Kept


class Config(DecisionOptions):
    """`network` is the file with the map; of the other options only those of the decision are used."""


def keep(dataset: Dataset, config: Config) -> Kept:
    points = read_map(Path(config.network), len(dataset.train))
    kept = decide(points, dataset.train.labels.numpy(), dataset.classes, config)
    points_hash = hash_array(points)
    about = {
        "network": {"network": config.network, "hash": points_hash},
        "map": {"reducer": "given", "hash": points_hash},
    }
    return replace(kept, info=about | kept.info)
