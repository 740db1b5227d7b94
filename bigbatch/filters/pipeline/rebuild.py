"""Rebuild a result from its manifest bit for bit, or say what has changed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bigbatch import datasets, parts
from bigbatch.artifacts import provenance
from bigbatch.datasets import Dataset, sha256
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import cache
from bigbatch.filters.pipeline.results import (
    Kept,
    Manifest,
    check_manifest,
    hash_masks_used,
    keep,
    load,
    replay_overrides,
)
from bigbatch.libraries import package_version

_PATHS = ("network", "after", "like", "path", "folder", "data_dir")  # options that may name a file or a folder


def rebuild(path: Path | str, data_dir: Path | None = None) -> Kept:
    """Recompute the result of a kept.npz or its .json from the data and the network, without the cache.

    It works from any folder, with the original number of threads, since sums depend on it.
    """
    manifest = _read_manifest(Path(path))
    dataset = load_filtered_dataset(Path(path), manifest, data_dir)
    if dataset.hash != manifest.dataset.hash:
        raise Problem(
            f"{path} was made for another dataset (hash {manifest.dataset.hash[:10]}, "
            f"this one has {dataset.hash[:10]}): point --data-dir to the one it was made for"
        )
    options = _resolve_paths(manifest.filter, _base_folders(Path(path), manifest))
    masks_now = hash_masks_used(options)
    for name, digest in manifest.masks_used.items():
        if masks_now[name] != digest:
            raise Problem(
                f"the result that '{name}' of {path} names has another mask now: "
                "restore that file, or filter the dataset again"
            )
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(manifest.threads)
        with tempfile.TemporaryDirectory() as empty, cache.use_folder(Path(empty)):
            kept = keep(dataset, parts.configure("filters", options))
    finally:
        torch.set_num_threads(threads)
    then, now = (about.get("network", {}).get("hash") for about in (manifest.info, kept.info))
    if then != now:
        raise Problem(
            f"the network or features of {path} have changed since (hash {str(then)[:10]}, now {str(now)[:10]}): "
            "restore what it was made with"
        )
    if sha256(kept.mask) != manifest.filter_mask_hash:
        raise Problem(
            f"{path} cannot be rebuilt bit for bit here ({_describe_differences(manifest)}): filter the dataset again"
        )
    return replace(kept, mask=replay_overrides(kept.mask, manifest.overrides))


def load_filtered_dataset(path: Path, manifest: Manifest, data_dir: Path | None) -> Dataset:
    """Load the dataset that the manifest names, from any folder; the caller compares the hash."""
    options = _resolve_paths(manifest.dataset.config, _base_folders(path, manifest))
    return datasets.load(parts.configure("datasets", options), data_dir)


def _read_manifest(path: Path) -> Manifest:
    if path.suffix != ".json":
        return load(path).require_manifest()
    try:
        return check_manifest(path, Manifest.from_fields(json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError) as error:
        raise Problem(f"manifest {path} cannot be read ({error}): give the kept.npz instead") from error


def _base_folders(path: Path, manifest: Manifest) -> list[Path]:
    """Return the folders that relative paths may start from: the original one, moved with the file or not, or here."""
    return [path.parent / manifest.working_folder_from_here, Path(manifest.working_folder), Path()]


def _resolve_paths(options: dict[str, Any], folders: Sequence[Path]) -> dict[str, Any]:
    """Return options whose relative paths lead to existing files."""
    found = dict(options)
    for name, value in options.items():
        if isinstance(value, dict):
            found[name] = _resolve_paths(value, folders)
        elif name in _PATHS and isinstance(value, str):
            found[name] = next((str(folder / value) for folder in folders if (folder / value).exists()), value)
    return found


def _describe_differences(manifest: Manifest) -> str:
    """Name the packages and hardware that differ from those of the manifest."""
    now = provenance.collect()["packages"]
    differences = [
        f"{name} {now.get(name) or package_version(name)} for {old}"
        for name, old in manifest.packages.items()
        if (now.get(name) or package_version(name)) != old
    ]
    if manifest.hardware["cpu"] != provenance.hardware()["cpu"]:
        differences.append("another processor")
    return ", ".join(differences) or "packages and processor are the same, so code or data differ"
