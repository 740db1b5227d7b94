"""Drop what is learned once and never forgotten: forgetting events in training (Toneva et al. 2019)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from bigbatch.datasets import Dataset
from bigbatch.filters.pipeline.budget import drop_largest
from bigbatch.filters.pipeline.results import Kept
from bigbatch.filters.pipeline.scoring import ScoringOptions, average_over_networks, train_scoring_network


class Config(ScoringOptions):
    epochs: int = Field(20, ge=2)  # each sample is looked at once an epoch, in the batch it is learned in


def keep(dataset: Dataset, config: Config) -> Kept:
    """How often a sample that was classified right is wrong at its next turn. Never right at all counts as most."""
    labels = dataset.train.labels

    def events(number: int) -> Tensor:
        forgotten = torch.zeros(len(labels))
        was_right, ever_right = (torch.zeros(len(labels), dtype=torch.bool) for _ in range(2))

        def watch(batch: Tensor, logits: Tensor) -> None:
            right = logits.argmax(1) == labels[batch]
            forgotten[batch] += (was_right[batch] & ~right).float()
            was_right[batch] = right
            ever_right[batch] |= right

        train_scoring_network(dataset, config, config.epochs, number, on_batch=watch)
        return forgotten.where(ever_right, torch.tensor(float(config.epochs)))

    difficulty = average_over_networks(config, events)
    score = torch.from_numpy(-difficulty)
    return Kept(
        score, drop_largest(score, dataset, config), {"measure": "forgetting events"}, {"difficulty": difficulty}
    )
