"""The result of a filter as one file: kept.npz, with a manifest in it and beside it that says how to rebuild it.

The .npz holds `mask`, `score`, `label`, arrays of the filter (`map`, `cluster` ...) and the manifest as text; kept.json
is the same text for people. The manifest lists a person's overrides in order: `filter_mask` is the filter's mask, and
`mask` is the same after the overrides. An override's `keep` is true, false, or null for the filter's decision; an
`undone` override stays in the list without effect.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from bigbatch import parts
from bigbatch.artifacts import atomic, provenance
from bigbatch.datasets import Dataset, sha256
from bigbatch.datasets.arrays import check_unpacked_size
from bigbatch.errors import Problem
from bigbatch.libraries import package_version

FORMAT = 2
_RESULTS = ("after", "like")  # options that name another filter's result


@dataclass(frozen=True)
class Kept:
    """The decision of a filter: a score and a verdict for each training sample. The test set is never filtered."""

    score: Tensor  # larger scores are dropped first
    mask: Tensor  # bool, true where kept
    info: dict[str, Any] = field(default_factory=dict)  # goes into the manifest: plain JSON values
    arrays: dict[str, Any] = field(default_factory=dict)  # goes into the .npz: one row per sample (map, cluster ...)


@dataclass(frozen=True)
class ClassCounts:
    """Kept and dropped samples of one class."""

    kept: int
    dropped: int


@dataclass(frozen=True)
class SampleCounts(ClassCounts):
    """Kept and dropped samples of all classes, and of each by its name."""

    by_class: dict[str, ClassCounts]


@dataclass(frozen=True)
class FilteredDataset:
    """The dataset that a result is for."""

    config: dict[str, Any]
    hash: str
    samples: int
    classes: list[str]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """How a result was made, in the order of its JSON file."""

    format: int = FORMAT
    made: str  # date and time
    dataset: FilteredDataset
    filter: dict[str, Any]  # its options
    masks_used: dict[str, str]
    info: dict[str, Any]  # what the filter says of itself
    working_folder: str  # which paths in the options are relative to
    threads: int
    packages: dict[str, str | None]
    hardware: dict[str, Any]
    commit: str | None
    command: list[str]
    lineage: list[dict[str, Any]]  # the rounds before this one
    counts: SampleCounts
    overrides: list[dict[str, Any]]
    filter_mask_hash: str
    mask_hash: str
    working_folder_from_here: str = "."  # the same, relative to the file

    @classmethod
    def from_fields(cls, fields: Any) -> Manifest | None:
        """Return the manifest of JSON fields; None if they are of another format or incomplete."""
        try:
            manifest = TypeAdapter(cls).validate_python(fields)
        except ValidationError:
            return None
        return manifest if manifest.format == FORMAT else None


@dataclass(frozen=True)
class FilterResult:
    """A filter's result as it is in a file, or will be."""

    path: Path
    mask: Tensor
    score: Tensor
    arrays: dict[str, NDArray[Any]]  # `label`, `filter_mask`, and what the filter adds
    dataset_hash: str
    manifest: Manifest | None  # None: not by this version; it can be trained on, but not rebuilt

    def require_manifest(self) -> Manifest:
        """The manifest, or a Problem where there is none."""
        return check_manifest(self.path, self.manifest)

    @property
    def labels(self) -> Tensor:
        return torch.from_numpy(self.arrays["label"])

    @property
    def filter_mask(self) -> Tensor:
        """What the filter itself kept, before any override."""
        return torch.from_numpy(self.arrays["filter_mask"])


def keep(dataset: Dataset, config: parts.Config) -> Kept:
    """Apply the filter that a config names."""
    kept: Kept = parts.find("filters", config.name).keep(dataset, config)
    return kept


def create_result(
    kept: Kept, dataset: Dataset, dataset_config: parts.Config, config: parts.Config, lineage: Iterable[Any] = ()
) -> FilterResult:
    """Build a result with its manifest; nothing is written yet."""
    about, options = provenance.collect(), config.model_dump(mode="json")
    mask, labels = kept.mask, dataset.train.labels
    manifest = Manifest(
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        dataset=FilteredDataset(
            dataset_config.model_dump(mode="json"), dataset.hash, len(dataset.train), list(dataset.classes)
        ),
        filter=options,
        masks_used=hash_masks_used(options),
        info=kept.info,
        working_folder=str(Path.cwd()),
        threads=torch.get_num_threads(),
        packages=about["packages"] | {name: package_version(name) for name in ("openTSNE", "scipy", "faiss-cpu")},
        hardware=about["hardware"],
        commit=about["commit"],
        command=about["command"],
        lineage=list(lineage),
        counts=count_samples(mask, labels, dataset.classes),
        overrides=[],
        filter_mask_hash=sha256(mask),
        mask_hash=sha256(mask),
    )
    arrays = kept.arrays | {"label": labels.numpy(), "filter_mask": mask.numpy()}
    return FilterResult(Path(), mask, kept.score, arrays, dataset.hash, manifest)


def hash_masks_used(options: dict[str, Any]) -> dict[str, str]:
    """Return the hash of the mask of each other result that a filter's options name."""
    found: dict[str, str] = {}
    for name, value in options.items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}": digest for inner, digest in hash_masks_used(value).items()}
        elif name in _RESULTS and value is not None:
            found[name] = sha256(load(value).mask)
    return found


def apply_overrides(saved: FilterResult, filter_mask: Tensor, overrides: Iterable[dict[str, Any]]) -> FilterResult:
    """Return the result with another mask of the filter and other overrides; counts and hashes are updated."""
    entries, manifest = list(overrides), saved.require_manifest()
    mask = replay_overrides(filter_mask, entries)
    manifest = replace(
        manifest,
        counts=count_samples(mask, saved.labels, manifest.dataset.classes),
        overrides=entries,
        filter_mask_hash=sha256(filter_mask),
        mask_hash=sha256(mask),
    )
    return replace(saved, mask=mask, arrays=saved.arrays | {"filter_mask": filter_mask.numpy()}, manifest=manifest)


def count_samples(mask: Tensor, labels: Tensor, classes: Sequence[str]) -> SampleCounts:
    """Kept and dropped samples, in all and per class."""
    had, left = (torch.bincount(of, minlength=len(classes)).tolist() for of in (labels, labels[mask]))
    by_class = {name: ClassCounts(left[index], had[index] - left[index]) for index, name in enumerate(classes)}
    return SampleCounts(int(mask.sum()), int((~mask).sum()), by_class)


def check_manifest(path: Path | str, manifest: Manifest | None) -> Manifest:
    """Return the manifest, or raise a Problem if there is none to rebuild the result from."""
    if manifest is None:
        raise Problem(f"{path} has no manifest of format {FORMAT}: create the result again with 'bigbatch filter'")
    return manifest


def save(path: Path | str, result: FilterResult) -> FilterResult:
    """Write a result and its readable manifest, each atomically."""
    path = Path(path)
    if path.suffix != ".npz":
        raise Problem(f"the result {path} must end in .npz: name it {path.with_suffix('.npz')}")
    manifest = result.require_manifest()
    from_here = os.path.relpath(manifest.working_folder, path.absolute().parent)
    manifest = replace(manifest, working_folder_from_here=from_here)
    text = json.dumps(asdict(manifest), indent=2, allow_nan=False)
    content = result.arrays | {
        "mask": result.mask.numpy(),
        "score": result.score.numpy(),
        "dataset_hash": np.array(result.dataset_hash),
        "manifest": np.array(text),
    }
    with atomic.replace_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **content)
    atomic.write_text(path.with_suffix(".json"), text + "\n")
    return replace(result, path=path, manifest=manifest)


def load(path: Path | str, dataset: Dataset | None = None) -> FilterResult:
    """Read a result; with a dataset, refuse one that was made for another."""
    try:
        with zipfile.ZipFile(path) as archive:
            check_unpacked_size(Path(path), archive)
        with np.load(Path(path), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        mask = torch.from_numpy(arrays.pop("mask").astype(bool))
        score = torch.from_numpy(arrays.pop("score")) if "score" in arrays else torch.zeros(len(mask))
        manifest = Manifest.from_fields(json.loads(str(arrays.pop("manifest", "null"))))
        made_for = str(arrays.pop("dataset_hash", ""))
        if mask.ndim != 1 or any(array.shape[:1] != mask.shape for array in (score, *arrays.values())):
            raise ValueError("its arrays do not have one row per sample")
        if manifest:
            _check_rows(manifest, arrays)
    except Problem:
        raise
    except Exception as error:  # of any kind: a damaged zip, header, type or manifest
        raise Problem(f"filter file {path} cannot be read ({error}): create it again with 'bigbatch filter'") from error
    if dataset is not None and (len(mask) != len(dataset.train) or made_for not in ("", dataset.hash)):
        raise Problem(
            f"filter file {path} was made for another dataset ({len(mask)} samples, hash {made_for[:10]}; "
            f"this one has {len(dataset.train)}, hash {dataset.hash[:10]}): create it again for this one"
        )
    return FilterResult(Path(path), mask, score, arrays, made_for, manifest)


def _check_rows(manifest: Manifest, arrays: dict[str, NDArray[Any]]) -> None:
    """Refuse labels and overrides that the manifest's classes and samples do not have."""
    labels, samples = arrays["label"], len(arrays["filter_mask"])
    named = [sample for entry in manifest.overrides for sample in entry["samples"]]
    if labels.dtype.kind not in "iu" or (
        len(labels) and not 0 <= labels.min() <= labels.max() < len(manifest.dataset.classes)
    ):
        raise ValueError("its labels are not those of its classes")
    if any(type(sample) is not int or not 0 <= sample < samples for sample in named):
        raise ValueError("its overrides name samples that it does not have")


def override(saved: FilterResult, samples: Iterable[int], *, keep: bool | None, reason: str) -> FilterResult:
    """Keep or drop samples by hand (None: as the filter decided), and save the result with this override."""
    manifest = saved.require_manifest()
    chosen = sorted({int(sample) for sample in samples})
    if chosen and not (chosen[0] >= 0 and chosen[-1] < len(saved.mask)):
        raise Problem(f"samples are numbered 0 to {len(saved.mask) - 1}, got {chosen[0]} to {chosen[-1]}: check them")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    entry = {"at": now, "samples": chosen, "keep": keep, "reason": reason}
    result = apply_overrides(saved, saved.filter_mask, [*manifest.overrides, entry])
    classes = manifest.dataset.classes
    refuse_empty_classes(result.mask, result.labels, classes, "this override", "leave some of its samples in")
    return save(saved.path, result)


def replay_overrides(filter_mask: Tensor, overrides: Iterable[dict[str, Any]]) -> Tensor:
    mask = filter_mask.clone()
    for entry in overrides:
        if not entry.get("undone"):
            samples = torch.tensor(entry["samples"], dtype=torch.int64)
            mask[samples] = filter_mask[samples] if entry["keep"] is None else entry["keep"]
    return mask


def refuse_empty_classes(mask: Tensor, labels: Tensor, classes: Sequence[str], dropper: str, advice: str) -> None:
    """Refuse a mask that drops all samples of a class: a network could not learn it."""
    by_class = count_samples(mask, labels, classes).by_class
    gone = [name for name, counts in by_class.items() if counts.dropped and not counts.kept]
    if gone:
        raise Problem(f"{dropper} would drop every sample of class {', '.join(gone)}: {advice}")


def jaccard(a: Tensor, b: Tensor) -> float:
    """|A ∩ B| / |A ∪ B|; two empty sets are the same set."""
    union = int((a | b).sum())
    return int((a & b).sum()) / union if union else 1.0
