"""Drop what several filters rank high: reciprocal rank fusion of their scores (Cormack et al. 2009).

A sample's score is the sum over filters of weight / (60 + its rank), ranks from 1 for the largest score; 60 is the
authors' constant, and weights are equal unless given. A high rank by one filter counts more than middling ranks by
all: noise of one kind is often seen by one filter only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.filters.pipeline.features import FeatureOptions, RankedOptions
from bigbatch.filters.pipeline.results import Kept
from bigbatch.filters.pipeline.results import keep as apply_filter
from bigbatch.filters.pipeline.scoring import drop_largest

_RANK_OFFSET = 60
_SHARED = set(FeatureOptions.model_fields) - {"name", "after"}


class Config(RankedOptions):
    """All filters use the same features; their other options are their defaults, or given by the filter's name."""

    of: tuple[str, ...] = Field(("loss", "neighbours", "junk"), min_length=1)
    weights: dict[str, NonNegativeFloat] = Field(default_factory=dict)  # 1 where a filter is not named
    options: dict[str, dict[str, Any]] = Field(default_factory=dict)


def keep(dataset: Dataset, config: Config) -> Kept:
    score = np.zeros(len(dataset.train))
    arrays: dict[str, Any] = {}
    info: dict[str, Any] = {"of": list(config.of)}
    for name in config.of:
        known = _SHARED & set(parts.find("filters", name).Config.model_fields)
        options = {"name": name} | config.model_dump(include=known) | config.options.get(name, {})
        kept = apply_filter(dataset, parts.configure("filters", options))
        order = torch.argsort(kept.score, descending=True, stable=True).numpy()
        rank = np.empty(len(order))
        rank[order] = np.arange(1, len(order) + 1)
        score += config.weights.get(name, 1.0) / (_RANK_OFFSET + rank)
        arrays |= kept.arrays | {f"score_{name}": kept.score.numpy()}
        info |= {"network": kept.info["network"]} if "network" in kept.info else {}
    scores = torch.from_numpy(score)
    return Kept(scores, drop_largest(scores, dataset, config), info, arrays)
