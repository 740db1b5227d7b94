"""Filters: which training samples are kept before training. A part offers `keep(dataset, config) -> Kept`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.errors import Problem


@dataclass(frozen=True)
class Kept:
    """What a filter decided: a score and a verdict for each training sample. The test set is never touched."""

    score: Tensor  # what it was decided by; larger means sooner dropped
    mask: Tensor  # bool, true where kept
    info: dict[str, Any] = field(default_factory=dict)


def kept_indices(config: parts.Config | None, dataset: Dataset) -> Tensor | None:
    """The numbers of the samples to train on, ascending; None for all."""
    if config is None:
        return None
    if dataset.task == "language":
        raise Problem(f"filter '{config.name}' chooses samples, but text is one stream: use --set filter=null")
    kept: Kept = parts.find("filters", config.name).keep(dataset, config)
    if not bool(kept.mask.any()):
        raise Problem(f"filter '{config.name}' drops every training sample: loosen it")
    return kept.mask.nonzero().squeeze(1)
