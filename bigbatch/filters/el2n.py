"""Drop what small networks get right early: the error vector's length, EL2N (Paul et al. 2021)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from bigbatch.datasets import Dataset
from bigbatch.filters.pipeline.results import Kept
from bigbatch.filters.pipeline.scoring import ScoringOptions, drop_by_difficulty, predict_probabilities


class Config(ScoringOptions):
    """5 epochs: early in training; the paper uses 10 to 20 of 200."""

    drop_which: Literal["easy", "hard"] = "easy"  # the paper keeps the hard ones, wrong labels among them


def keep(dataset: Dataset, config: Config) -> Kept:
    """‖p(x) − y‖₂, the mean over networks (section 2 of the paper)."""
    targets = torch.nn.functional.one_hot(dataset.train.labels, len(dataset.classes))

    def error_length(number: int) -> Tensor:
        predicted = predict_probabilities(config.learner().train(dataset, number), dataset)
        lengths: Tensor = torch.linalg.vector_norm(predicted - targets, dim=1)
        return lengths

    return drop_by_difficulty(dataset, config, "EL2N", error_length, drop_hard=config.drop_which == "hard")
