"""The result of a filter as one file: kept.npz, with a manifest in it and beside it that says how to make it again.

The .npz holds `mask`, `score`, `label`, what the filter adds (`map`, `cluster` ...) and the manifest as text; kept.json
is the same text for people. A person's overrides stand in the manifest in the order they were made: the filter's
own mask is `filter_mask`, and `mask` is what the overrides make of it. An override's `keep` is true, false, or null
for the filter's own word again; one that is `undone` stays in the history and counts no more.
"""

from __future__ import annotations

import json
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

from bigbatch import datasets, parts, provenance, whole
from bigbatch.datasets import Dataset, sha256
from bigbatch.errors import Problem
from bigbatch.filters import _cache
from bigbatch.filters._kept import Kept
from bigbatch.filters._library import version

FORMAT = 1


@dataclass(frozen=True)
class Saved:
    """A filter's result as it is in a file, or will be."""

    path: Path
    mask: Tensor
    score: Tensor
    arrays: dict[str, NDArray[Any]]  # `label`, `filter_mask`, and what the filter adds
    manifest: dict[str, Any]

    @property
    def dataset_hash(self) -> str:
        return self.manifest.get("dataset", {}).get("hash", "")

    @property
    def labels(self) -> Tensor:
        return torch.from_numpy(self.arrays["label"])

    @property
    def filter_mask(self) -> Tensor:
        """What the filter itself kept, before any override."""
        return torch.from_numpy(self.arrays["filter_mask"])


def result_of(
    kept: Kept, dataset: Dataset, dataset_config: parts.Config, config: parts.Config, lineage: Iterable[Any] = ()
) -> Saved:
    """A fresh result with its manifest; nothing is written yet."""
    about = provenance.collect()
    packages = about["packages"] | {name: version(name) for name in ("openTSNE", "scipy", "faiss-cpu")}
    manifest = {
        "format": FORMAT,
        "made": _now(),
        "dataset": {
            "config": dataset_config.model_dump(mode="json"),
            "hash": dataset.hash,
            "samples": len(dataset.train),
            "classes": list(dataset.classes),
        },
        "filter": config.model_dump(mode="json"),
        "info": kept.info,
        "threads": torch.get_num_threads(),
        "packages": packages,
        "hardware": about["hardware"],
        "commit": about["commit"],
        "command": about["command"],
        "lineage": list(lineage),
    }
    arrays = kept.arrays | {"label": dataset.train.labels.numpy()}
    return with_overrides(Saved(Path(), kept.mask, kept.score, arrays, manifest), kept.mask, [])


def with_overrides(saved: Saved, filter_mask: Tensor, overrides: Iterable[dict[str, Any]]) -> Saved:
    """The result with this mask of the filter's own and what people made of it; counts and hashes follow."""
    entries = list(overrides)
    mask = replayed(filter_mask, entries)
    manifest = saved.manifest | {
        "counts": counts(mask, saved.labels, saved.manifest["dataset"]["classes"]),
        "overrides": entries,
        "filter_mask_hash": sha256(filter_mask),
        "mask_hash": sha256(mask),
    }
    return replace(saved, mask=mask, arrays=saved.arrays | {"filter_mask": filter_mask.numpy()}, manifest=manifest)


def counts(mask: Tensor, labels: Tensor, classes: Iterable[str]) -> dict[str, Any]:
    """Kept and dropped, over all and class by class."""
    by_class = {}
    for index, name in enumerate(classes):
        of_class = labels == index
        kept = int((mask & of_class).sum())
        by_class[name] = {"kept": kept, "dropped": int(of_class.sum()) - kept}
    return {"kept": int(mask.sum()), "dropped": int((~mask).sum()), "by_class": by_class}


def save(path: Path | str, result: Saved) -> Saved:
    """Write a result and its readable copy, each under a temporary name: nobody finds half of one."""
    path = Path(path)
    if path.suffix != ".npz":
        raise Problem(f"the result {path} has to end in .npz: name it {path.with_suffix('.npz')}")
    text = json.dumps(result.manifest, indent=2, allow_nan=False)
    content = result.arrays | {
        "mask": result.mask.numpy(),
        "score": result.score.numpy(),
        "dataset_hash": np.array(result.dataset_hash),
        "manifest": np.array(text),
    }
    with whole.file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **content)
    whole.write_text(path.with_suffix(".json"), text + "\n")
    return replace(result, path=path)


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


def override(saved: Saved, samples: Iterable[int], *, keep: bool | None, reason: str) -> Saved:
    """A person's word over the filter's (None: the filter's own again), written into the file and its history."""
    if not saved.manifest:
        raise Problem(f"filter file {saved.path} has no manifest to note an override in: make it again")
    chosen = sorted({int(sample) for sample in samples})
    if chosen and not (chosen[0] >= 0 and chosen[-1] < len(saved.mask)):
        raise Problem(f"samples are numbered 0 to {len(saved.mask) - 1}, got {chosen[0]} to {chosen[-1]}: check them")
    entry = {"at": _now(), "samples": chosen, "keep": keep, "reason": reason}
    return save(saved.path, with_overrides(saved, saved.filter_mask, [*saved.manifest["overrides"], entry]))


def replayed(filter_mask: Tensor, overrides: Iterable[dict[str, Any]]) -> Tensor:
    mask = filter_mask.clone()
    for entry in overrides:
        if not entry.get("undone"):
            samples = torch.tensor(entry["samples"], dtype=torch.int64)
            mask[samples] = filter_mask[samples] if entry["keep"] is None else entry["keep"]
    return mask


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


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
