"""A text in which each word has a few equally likely successors: no model has a perplexity below their number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from pydantic import Field, PositiveInt

from bigbatch import parts, rng
from bigbatch.datasets import Dataset
from bigbatch.datasets.reading.hashing import hash_json
from bigbatch.datasets.reading.text import UnsplitTokens

_SUCCESSORS, _CHOICES = 71, 72  # random streams


class Config(parts.Config):
    words: int = Field(50, ge=2)
    successors: PositiveInt = 3  # of each word; some may be the same word
    tokens: int = Field(20_000, ge=2)  # to train on; a tenth as many to test
    steps: PositiveInt = 20  # tokens in a window


def load(config: Config, data_dir: Path | None = None) -> Dataset:
    table = rng.integers(config.words, _SUCCESSORS, np.arange(config.words * config.successors))
    table = table.reshape(config.words, config.successors)
    choices = rng.integers(config.successors, _CHOICES, np.arange(config.tokens + max(2, config.tokens // 10)))
    text = [0]
    for choice in choices[1:]:
        text.append(int(table[text[-1], choice]))
    train, test = torch.tensor(text).split([config.tokens, len(text) - config.tokens])
    return Dataset(
        train=UnsplitTokens(train, config.steps),
        test=UnsplitTokens(test, config.steps),
        classes=tuple(map(str, range(config.words))),
        sample_shape=(config.steps,),
        hash=hash_json(config.model_dump(mode="json")),
        task="language",
    )
