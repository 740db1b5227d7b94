"""Filters: which training samples are kept before training. A part offers `keep(dataset, config) -> Kept`.

`network` is a function here and a file of this folder: the file is imported first, so that a later import cannot
replace the function by the module.

The last stage of the network filter works without its network: `eps_star`, `decide_eps`, `mask_at` and
`cluster_labels` compute it, `decide_again` applies it to a saved result.
"""

from __future__ import annotations

from torch import Tensor

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.errors import Problem
from bigbatch.filters.network import network
from bigbatch.filters.pipeline.decision import cluster_labels, decide, decide_again, decide_eps, eps_star, mask_at
from bigbatch.filters.pipeline.rebuild import rebuild
from bigbatch.filters.pipeline.results import FilterResult, Kept, create_result, jaccard, keep, load, override, save

__all__ = [
    "FilterResult",
    "Kept",
    "cluster_labels",
    "create_result",
    "decide",
    "decide_again",
    "decide_eps",
    "eps_star",
    "jaccard",
    "keep",
    "kept_indices",
    "load",
    "mask_at",
    "network",
    "override",
    "rebuild",
    "save",
]


def kept_indices(config: parts.Config | None, dataset: Dataset) -> Tensor | None:
    """Return the indices of the samples to train on, ascending; None for all."""
    if config is None:
        return None
    if dataset.task == "language":
        raise Problem(f"filter '{config.name}' chooses samples, but text is one stream: use --set filter=null")
    kept = keep(dataset, config)
    if not bool(kept.mask.any()):
        raise Problem(f"filter '{config.name}' drops every training sample: loosen it")
    return kept.mask.nonzero().squeeze(1)
