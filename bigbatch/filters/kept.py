"""Train on what a saved filter kept: a .npz file with `mask`, made for this very dataset."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from bigbatch import parts
from bigbatch.datasets import Dataset, sha256
from bigbatch.errors import Problem
from bigbatch.filters.pipeline.results import Kept, load


class Config(parts.Config):
    """The mask's hash is part of the run: the same file with another mask in it makes another run."""

    path: str
    mask_hash: str = ""

    @model_validator(mode="before")
    @classmethod
    def _hash_of_what_is_there(cls, options: Any) -> Any:
        if isinstance(options, dict) and isinstance(options.get("path"), str) and not options.get("mask_hash"):
            return options | {"mask_hash": sha256(load(options["path"]).mask)}
        return options


def keep(dataset: Dataset, config: Config) -> Kept:
    saved = load(config.path, dataset)
    if sha256(saved.mask) != config.mask_hash:
        raise Problem(
            f"filter file {config.path} was changed after this run had been described: "
            f"put it back, or train it anew with --set filter={config.path}"
        )
    return Kept(saved.score, saved.mask, {"path": config.path})
