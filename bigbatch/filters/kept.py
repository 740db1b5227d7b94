"""Train on what a saved filter kept: a .npz file with `mask`, made for this very dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.errors import Problem
from bigbatch.filters import Kept


class Config(parts.Config):
    path: str


def keep(dataset: Dataset, config: Config) -> Kept:
    try:
        with np.load(Path(config.path), allow_pickle=False) as file:
            mask = torch.from_numpy(file["mask"].astype(bool))
            score = torch.from_numpy(file["score"]) if "score" in file else torch.zeros(len(mask))
            made_for = str(file["dataset_hash"]) if "dataset_hash" in file else dataset.hash
    except (OSError, ValueError, KeyError) as error:
        raise Problem(
            f"filter file {config.path} cannot be read ({error}): make it again with 'bigbatch filter'"
        ) from error
    if len(mask) != len(dataset.train) or made_for != dataset.hash:
        raise Problem(
            f"filter file {config.path} was made for another dataset ({len(mask)} samples, hash {made_for[:10]}; "
            f"this one has {len(dataset.train)}, hash {dataset.hash[:10]}): make it again for this one"
        )
    return Kept(score, mask, {"path": config.path})
