"""Rebuild a result from its manifest bit for bit, or say what has changed."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bigbatch import datasets, parts
from bigbatch.artifacts import provenance
from bigbatch.datasets import Dataset, sha256
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import cache, results
from bigbatch.filters.pipeline.results import Kept, Manifest, keep, replay_overrides
from bigbatch.libraries import package_version

_PATHS = ("network", "after", "like", "path", "folder", "data_dir")  # options that may name a file or a folder


def rebuild(path: Path | str, data_dir: Path | None = None) -> Kept:
    """Recompute the result of a kept.npz or its .json from the data and the network, without the cache.

    It works from any folder, with the original number of threads, since sums depend on it.
    """
    path = Path(path)
    manifest = _read_manifest(path)
    dataset = load_filtered_dataset(path, manifest, data_dir)
    if dataset.hash != manifest.dataset.hash:
        raise Problem(
            f"{path} was made for another dataset (hash {manifest.dataset.hash[:10]}, "
            f"this one has {dataset.hash[:10]}): point --data-dir to the one it was made for"
        )
    options = _resolve_paths(manifest.filter, path, manifest)
    masks_now = results.hash_masks_used(options)
    for name, digest in manifest.masks_used.items():
        if masks_now[name] != digest:
            raise Problem(
                f"the result that '{name}' of {path} names has another mask now: "
                "restore that file, or filter the dataset again"
            )
    for entry in manifest.lineage:
        file = _resolve_paths({"path": entry["file"]}, path, manifest)["path"]
        if "mask_hash" in entry and sha256(results.load(file).mask) != entry["mask_hash"]:
            raise Problem(
                f"round {entry['round']} of {path}, which is {file}, has another mask now: "
                "restore that file, or filter the dataset again"
            )
    if options.get("jobs") == "auto":
        options["jobs"] = manifest.info["map"]["jobs"]
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
    options = _resolve_paths(manifest.dataset.config, path, manifest)
    return datasets.load(parts.configure("datasets", options), data_dir)


def _read_manifest(path: Path) -> Manifest:
    if path.suffix != ".json":
        return results.load(path).require_manifest()
    try:
        return results.check_manifest(path, Manifest.from_fields(json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError) as error:
        raise Problem(f"manifest {path} cannot be read ({error}): give the kept.npz instead") from error


def _resolve_paths(options: dict[str, Any], path: Path, manifest: Manifest) -> dict[str, Any]:
    """Return options whose relative paths lead to existing files: from the original folder, moved or not, or here."""
    folders = (path.parent / manifest.working_folder_from_here, Path(manifest.working_folder), Path())
    found = dict(options)
    for name, value in options.items():
        if isinstance(value, dict):
            found[name] = _resolve_paths(value, path, manifest)
        elif name in _PATHS and isinstance(value, str):
            found[name] = next((str(folder / value) for folder in folders if (folder / value).exists()), value)
    return found


def _describe_differences(manifest: Manifest) -> str:
    """Name the packages and hardware that differ from those of the manifest."""
    packages = provenance.collect()["packages"]
    now = {name: packages.get(name) or package_version(name) for name in manifest.packages}
    differences = [f"{name} {now[name]} for {old}" for name, old in manifest.packages.items() if now[name] != old]
    if manifest.hardware["cpu"] != provenance.hardware()["cpu"]:
        differences.append("another processor")
    return ", ".join(differences) or "packages and processor are the same, so code or data differ"
