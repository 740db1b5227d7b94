"""The result of a filter as one file: kept.npz, with a manifest in it and beside it that says how to make it again.

The .npz holds `mask`, `score`, `label`, what the filter adds (`map`, `cluster`) and the manifest as text; kept.json
is the same text for people. A person's overrides stand in the manifest in the order they were made: the filter's
own mask is `filter_mask`, and `mask` is what the overrides make of it.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbatch import datasets, parts, provenance
from bigbatch.datasets import Dataset
from bigbatch.errors import Problem
from bigbatch.filters import _cache
from bigbatch.filters._kept import Kept
from bigbatch.filters._library import version

FORMAT = 1


@dataclass(frozen=True)
class Saved:
    """A filter's result as it was read."""

    path: Path
    mask: Tensor
    score: Tensor
    arrays: dict[str, NDArray[Any]]
    manifest: dict[str, Any]

    @property
    def dataset_hash(self) -> str:
        return self.manifest.get("dataset", {}).get("hash", "")


def describe(
    kept: Kept, dataset: Dataset, dataset_config: parts.Config, config: parts.Config, lineage: Iterable[Any] = ()
) -> dict[str, Any]:
    """The manifest of a fresh result."""
    about = provenance.collect()
    packages = about["packages"] | {name: version(name) for name in ("openTSNE", "scipy", "faiss-cpu")}
    return {
        "format": FORMAT,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "dataset": {
            "config": dataset_config.model_dump(mode="json"),
            "hash": dataset.hash,
            "samples": len(dataset.train),
            "classes": list(dataset.classes),
        },
        "filter": config.model_dump(mode="json"),
        "info": kept.info,
        "counts": counts(kept.mask, dataset.train.labels, dataset.classes),
        "threads": torch.get_num_threads(),
        "packages": packages,
        "hardware": about["hardware"],
        "commit": about["commit"],
        "command": about["command"],
        "lineage": list(lineage),
        "overrides": [],
    }


def counts(mask: Tensor, labels: Tensor, classes: Iterable[str]) -> dict[str, Any]:
    """Kept and dropped, over all and class by class."""
    by_class = {}
    for index, name in enumerate(classes):
        of_class = labels == index
        kept = int((mask & of_class).sum())
        by_class[name] = {"kept": kept, "dropped": int(of_class.sum()) - kept}
    return {"kept": int(mask.sum()), "dropped": int((~mask).sum()), "by_class": by_class}


def save(path: Path, kept: Kept, labels: Tensor, manifest: dict[str, Any]) -> None:
    """The readable copy first and the result last, each under a temporary name: nobody finds half of it."""
    _write(path, kept.mask, kept.mask, kept.score, labels, kept.arrays, manifest)


def _write(
    path: Path,
    mask: Tensor,
    filter_mask: Tensor,
    score: Tensor,
    labels: Tensor,
    arrays: dict[str, NDArray[Any]],
    manifest: dict[str, Any],
) -> None:
    if path.suffix != ".npz":
        raise Problem(f"the result {path} has to end in .npz: name it {path.with_suffix('.npz')}")
    text = json.dumps(manifest, indent=2, allow_nan=False)
    content = arrays | {
        "mask": mask.numpy(),
        "filter_mask": filter_mask.numpy(),
        "score": score.numpy(),
        "label": labels.numpy(),
        "dataset_hash": np.array(manifest["dataset"]["hash"]),
        "manifest": np.array(text),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.stem}.json.{os.getpid()}.tmp")
        try:
            temporary.write_text(text + "\n", encoding="utf-8")
            _cache.write_npz(path, content)
            temporary.replace(path.with_suffix(".json"))
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise Problem(f"{path} could not be written ({error.strerror}): free space there, or choose another") from error


def load(path: Path | str, dataset: Dataset | None = None) -> Saved:
    """Read a result; with a dataset, refuse one that was made for another."""
    try:
        with np.load(Path(path), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        mask = torch.from_numpy(arrays.pop("mask").astype(bool))
        score = torch.from_numpy(arrays.pop("score")) if "score" in arrays else torch.zeros(len(mask))
        manifest = json.loads(str(arrays.pop("manifest"))) if "manifest" in arrays else {}
        made_for = str(arrays.pop("dataset_hash", ""))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise Problem(f"filter file {path} cannot be read ({error}): make it again with 'bigbatch filter'") from error
    if dataset is not None and (len(mask) != len(dataset.train) or made_for not in ("", dataset.hash)):
        raise Problem(
            f"filter file {path} was made for another dataset ({len(mask)} samples, hash {made_for[:10]}; "
            f"this one has {len(dataset.train)}, hash {dataset.hash[:10]}): make it again for this one"
        )
    return Saved(Path(path), mask, score, arrays, manifest)


def override(saved: Saved, samples: Iterable[int], *, keep: bool, reason: str) -> Saved:
    """A person's word over the filter's, written into the file and its history."""
    if not saved.manifest:
        raise Problem(f"filter file {saved.path} has no manifest to note an override in: make it again")
    chosen = sorted({int(sample) for sample in samples})
    if chosen and not (chosen[0] >= 0 and chosen[-1] < len(saved.mask)):
        raise Problem(f"samples are numbered 0 to {len(saved.mask) - 1}, got {chosen[0]} to {chosen[-1]}: check them")
    entry = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "samples": chosen,
        "keep": keep,
        "reason": reason,
    }
    manifest = saved.manifest | {"overrides": [*saved.manifest["overrides"], entry]}
    labels = torch.from_numpy(saved.arrays["label"])
    filter_mask = torch.from_numpy(saved.arrays["filter_mask"])
    mask = replayed(filter_mask, manifest["overrides"])
    manifest["counts"] = counts(mask, labels, manifest["dataset"]["classes"])
    own = {name: array for name, array in saved.arrays.items() if name not in ("label", "filter_mask")}
    _write(saved.path, mask, filter_mask, saved.score, labels, own, manifest)
    return replace(saved, mask=mask, manifest=manifest)


def replayed(filter_mask: Tensor, overrides: Iterable[dict[str, Any]]) -> Tensor:
    mask = filter_mask.clone()
    for entry in overrides:
        mask[torch.tensor(entry["samples"], dtype=torch.int64)] = entry["keep"]
    return mask


def rebuild(path: Path | str, data_dir: Path | None = None) -> Kept:
    """Make the result of a manifest again, from the data and the network alone: nothing is taken from the cache.

    Takes a kept.npz or its .json. The same number of threads is used, since sums depend on it.
    """
    manifest = _read_manifest(Path(path))
    dataset = datasets.load(parts.configure("datasets", manifest["dataset"]["config"]), data_dir)
    if dataset.hash != manifest["dataset"]["hash"]:
        raise Problem(
            f"{path} was made for another dataset (hash {manifest['dataset']['hash'][:10]}, "
            f"this one has {dataset.hash[:10]}): point --data-dir to the one it was made for"
        )
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(manifest["threads"])
        with tempfile.TemporaryDirectory() as empty, _cache.below(Path(empty)):
            kept = keep(dataset, parts.configure("filters", manifest["filter"]))
    finally:
        torch.set_num_threads(threads)
    hashes = [about.get("network", {}).get("hash") for about in (manifest["info"], kept.info)]
    if hashes[0] != hashes[1]:
        raise Problem(
            f"the network of {path} has changed since (hash {str(hashes[0])[:10]}, now {str(hashes[1])[:10]}): "
            "restore the one it was made with"
        )
    return replace(kept, mask=replayed(kept.mask, manifest["overrides"]))


def keep(dataset: Dataset, config: parts.Config) -> Kept:
    return parts.find("filters", config.name).keep(dataset, config)


def _read_manifest(path: Path) -> dict[str, Any]:
    if path.suffix != ".json":
        manifest = load(path).manifest
    else:
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise Problem(f"manifest {path} cannot be read ({error}): give the kept.npz instead") from error
    if manifest.get("format") != FORMAT:
        raise Problem(f"{path} has no manifest of format {FORMAT}: make the result again with 'bigbatch filter'")
    return manifest
