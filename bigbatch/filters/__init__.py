"""Filters: which training samples are kept before training. A part offers `keep(dataset, config) -> Kept`.

`network` names a function here and a file of this folder: the file is imported first, so that a later import of it
cannot put the module in the function's place.
"""

from __future__ import annotations

from torch import Tensor

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.errors import Problem
from bigbatch.filters._kept import Kept
from bigbatch.filters._manifest import load, override, rebuild
from bigbatch.filters.network import network

__all__ = ["Kept", "kept_indices", "load", "network", "override", "rebuild"]


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
