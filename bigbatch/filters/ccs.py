"""Keep samples of every difficulty: coverage-centred selection, CCS (Zheng et al. 2023, arXiv 2210.15809)."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PositiveInt, SerializeAsAny

from bigbatch import parts, rng
from bigbatch.datasets import Dataset
from bigbatch.filters.pipeline.results import Kept
from bigbatch.filters.pipeline.scoring import DropOptions, groups_to_drop

_DRAW = 202


def _configure_difficulty(value: Any) -> Any:
    config = parts.configure("filters", value)
    if config.name not in ("el2n", "forgetting", "grand"):
        raise ValueError(f"is '{config.name}', which does not measure difficulty: use el2n, forgetting or grand")
    return config


class Config(DropOptions):
    by: Annotated[SerializeAsAny[parts.Config], BeforeValidator(_configure_difficulty)] = Field(
        "el2n", validate_default=True
    )
    hardest: float = Field(0.05, ge=0, lt=1)  # β: dropped first, as they are often labelled wrong
    strata: PositiveInt = 50


def keep(dataset: Dataset, config: Config) -> Kept:
    """Algorithm 1: drop the hardest, split the range of difficulty into strata, keep an equal number of each."""
    measured: Kept = parts.find("filters", config.by.name).keep(dataset, config.by)
    difficulty = measured.arrays["difficulty"]
    draw = rng.uniform(config.seed, _DRAW, np.arange(len(difficulty)))
    score, mask = np.empty(len(difficulty)), np.ones(len(difficulty), bool)
    for members, drop_count in groups_to_drop(dataset, config):
        group = members.numpy()
        score[group], mask[group] = _sample_strata(difficulty[group], draw[group], drop_count, config)
    return Kept(torch.from_numpy(score), torch.from_numpy(mask), {"by": config.by.name}, {"difficulty": difficulty})


def _sample_strata(
    difficulty: NDArray[np.float64], draw: NDArray[np.float64], drop_count: int, config: Config
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return scores (below 1: drawn, below 2: not drawn, 2 or more: among the hardest) and the mask."""
    count = len(difficulty)
    cut_count = min(round(config.hardest * count), drop_count)
    by_difficulty = np.lexsort((draw, difficulty))
    left, cut = by_difficulty[: count - cut_count], by_difficulty[count - cut_count :]
    kept = np.zeros(count, bool)
    for members, budget_of_pool in _stratum_budgets(difficulty, left, count - drop_count, config.strata):
        kept[members[np.argsort(draw[members], kind="stable")[:budget_of_pool]]] = True
    score = np.where(kept, draw, 1 + draw)
    score[cut] = 2 + draw[cut]
    return score, kept


def _stratum_budgets(
    difficulty: NDArray[np.float64], left: NDArray[np.int64], budget: int, strata: int
) -> list[tuple[NDArray[np.int64], int]]:
    """Return strata of equal width, smallest first, with their budgets: larger strata fill up for smaller ones."""
    if len(left) == 0:
        return []
    low, high = difficulty[left].min(), difficulty[left].max()
    width = (high - low) / strata or 1.0
    stratum = np.minimum(((difficulty[left] - low) / width).astype(int), strata - 1)
    pools = sorted((left[stratum == index] for index in np.unique(stratum)), key=len)
    budgets = []
    for number, pool in enumerate(pools):
        budget_of_pool = min(len(pool), budget // (len(pools) - number))
        budgets.append((pool, budget_of_pool))
        budget -= budget_of_pool
    return budgets
