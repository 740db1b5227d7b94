"""Train on what a saved filter kept: a .npz file with `mask`, made for this very dataset."""

from __future__ import annotations

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.filters._kept import Kept
from bigbatch.filters._manifest import load


class Config(parts.Config):
    path: str


def keep(dataset: Dataset, config: Config) -> Kept:
    saved = load(config.path, dataset)
    return Kept(saved.score, saved.mask, {"path": config.path})
