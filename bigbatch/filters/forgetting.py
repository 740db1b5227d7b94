"""Drop what is learned once and never forgotten: forgetting events in training (Toneva et al. 2019)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from bigbatch.datasets import Dataset
from bigbatch.filters.pipeline.results import Kept
from bigbatch.filters.pipeline.scoring import ScoringOptions, drop_by_difficulty


class Config(ScoringOptions):
    epochs: int = Field(20, ge=2)  # each sample is checked once per epoch, in its batch


def keep(dataset: Dataset, config: Config) -> Kept:
    """Count how often a correctly classified sample is wrong in the next epoch; never correct counts as the maximum."""
    labels = dataset.train.labels

    def events(number: int) -> Tensor:
        forgotten = torch.zeros(len(labels))
        was_right, ever_right = (torch.zeros(len(labels), dtype=torch.bool) for _ in range(2))

        def watch(batch: Tensor, logits: Tensor) -> None:
            right = logits.argmax(1) == labels[batch]
            forgotten[batch] += (was_right[batch] & ~right).float()
            was_right[batch] = right
            ever_right[batch] |= right

        config.learner().train(dataset, number, on_batch=watch)
        return forgotten.where(ever_right, torch.tensor(float(config.epochs)))

    return drop_by_difficulty(dataset, config, "forgetting events", events)
