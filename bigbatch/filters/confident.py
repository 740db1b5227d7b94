"""Drop samples whose label is likely wrong: confident learning by cleanlab (Northcutt et al. 2021)."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from bigbatch import rng
from bigbatch.datasets import Dataset
from bigbatch.filters.pipeline import ranks
from bigbatch.filters.pipeline.results import Kept
from bigbatch.filters.pipeline.scoring import ScoringOptions, drop_largest, predict_probabilities, train_scoring_network
from bigbatch.libraries import import_library

_FOLDS = 205


class Config(ScoringOptions):
    epochs: int = Field(10, ge=1)
    networks: int = Field(5, ge=2)  # folds: each sample is judged by the network that did not learn from it
    count: Literal["found", "drop"] = "found"  # as many as cleanlab finds, or the fraction (or `like`)


def keep(dataset: Dataset, config: Config) -> Kept:
    cleanlab_rank = import_library("cleanlab.rank", "filter 'confident'")
    cleanlab_filter = import_library("cleanlab.filter", "filter 'confident'")
    labels = dataset.train.labels
    predicted = ranks.compute_on_rank_zero(lambda: _cross_validated_probabilities(dataset, config)).double().numpy()
    quality = cleanlab_rank.get_label_quality_scores(labels.numpy(), predicted)
    issues = cleanlab_filter.find_label_issues(labels.numpy(), predicted, n_jobs=1)
    score = torch.from_numpy(1 - quality)
    by_rank = config.count == "drop" or config.like is not None
    mask = drop_largest(score, dataset, config) if by_rank else torch.from_numpy(~issues)
    return Kept(score, mask, {"label_issues_found": int(issues.sum()), "folds": config.networks})


def _cross_validated_probabilities(dataset: Dataset, config: Config) -> Tensor:
    """Return each sample's probabilities by the network that did not learn from it."""
    samples = len(dataset.train)
    predicted = torch.zeros(samples, len(dataset.classes))
    for number, held_out in enumerate(rng.permutation(samples, config.seed, _FOLDS).chunk(config.networks)):
        is_learned = torch.ones(samples, dtype=torch.bool)
        is_learned[held_out] = False
        model = train_scoring_network(dataset, config, config.epochs, number, is_learned.nonzero().squeeze(1))
        predicted[held_out] = predict_probabilities(model, dataset, held_out)
    return predicted
