"""Drop samples whose label is likely wrong: confident learning by cleanlab (Northcutt et al. 2021)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from bigbatch.datasets import Dataset
from bigbatch.filters.pipeline import ranks
from bigbatch.filters.pipeline.results import Kept
from bigbatch.filters.pipeline.scoring import ScoringOptions, drop_largest, predict_probabilities
from bigbatch.libraries import import_library


class Config(ScoringOptions):
    epochs: int = Field(10, ge=1)
    networks: int = Field(5, ge=2)  # folds: each sample is judged by the network that did not learn from it
    count: Literal["found", "drop"] = "found"  # as many as cleanlab finds, or the fraction (or `like`)


def keep(dataset: Dataset, config: Config) -> Kept:
    cleanlab_rank = import_library("cleanlab.rank", "filter 'confident'")
    cleanlab_filter = import_library("cleanlab.filter", "filter 'confident'")
    labels = dataset.train.labels.numpy()

    def predict_held_out() -> NDArray[np.float64]:
        predicted = torch.zeros(len(labels), len(dataset.classes))
        for held_out, model in config.learner().train_on_folds(dataset, config.networks):
            predicted[held_out] = predict_probabilities(model, dataset, held_out)
        return predicted.double().numpy()

    predicted = ranks.compute_on_rank_zero(predict_held_out)
    issues = cleanlab_filter.find_label_issues(labels, predicted, n_jobs=1)
    score = torch.from_numpy(1 - cleanlab_rank.get_label_quality_scores(labels, predicted))
    by_rank = config.count == "drop" or config.like is not None
    mask = drop_largest(score, dataset, config) if by_rank else torch.from_numpy(~issues)
    return Kept(score, mask, {"label_issues_found": int(issues.sum()), "folds": config.networks})
