"""Drop what DBSCAN calls noise, class by class, on the map that a file of features brings along.

A filter by the name of bigbatch.viewer.on_map: what the viewer exports of such a file is made again by it.
"""

from __future__ import annotations

from pathlib import Path

import torch

from bigbatch.datasets import Dataset
from bigbatch.filters import Kept, _cache
from bigbatch.filters.network import Config as NetworkConfig
from bigbatch.filters.network import decided, refuse_small_classes
from bigbatch.viewer import decide
from bigbatch.viewer.features_file import map_of


class Config(NetworkConfig):
    """`network` is the file; of the other options those of the decision count."""


def keep(dataset: Dataset, config: Config) -> Kept:
    labels = dataset.train.labels
    refuse_small_classes(labels, dataset.classes, config.min_samples)
    places = map_of(Path(config.network), len(dataset.train))
    eps_star = decide.eps_star(places, labels.numpy(), config.min_samples)
    decision = decided(places, eps_star, labels.numpy(), dataset.classes, config)
    places_hash = _cache.hash_of_array(places)
    about = {
        "network": {"network": config.network, "hash": places_hash},
        "map": {"reducer": "given", "hash": places_hash},
    }
    return Kept(torch.from_numpy(eps_star), decision.mask, about | decision.info, decision.arrays)
