"""Train on what a saved filter kept: an .npz file with `mask`, made for this dataset."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from bigbatch import parts
from bigbatch.datasets import Dataset, sha256
from bigbatch.errors import Problem
from bigbatch.filters.pipeline.results import Kept, load


class Config(parts.Config):
    """The hash of the mask is part of the run: the same file with another mask is another run."""

    path: str
    mask_hash: str = ""

    @model_validator(mode="before")
    @classmethod
    def _add_mask_hash(cls, options: Any) -> Any:
        if isinstance(options, dict) and isinstance(options.get("path"), str) and not options.get("mask_hash"):
            return options | {"mask_hash": sha256(load(options["path"]).mask)}
        return options


def keep(dataset: Dataset, config: Config) -> Kept:
    saved = load(config.path, dataset)
    if sha256(saved.mask) != config.mask_hash:
        raise Problem(
            f"filter file {config.path} has changed since this run was created: "
            f"restore it, or start a new run with --set filter={config.path}"
        )
    return Kept(saved.score, saved.mask, {"path": config.path})
