"""What `bigbatch view` is given: a filter's result, a folder of results, or a file of features."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from bigbatch import datasets, filters, parts
from bigbatch.datasets import Dataset
from bigbatch.datasets.arrays import read_map
from bigbatch.datasets.reading.hashing import hash_array
from bigbatch.errors import Notice, Problem
from bigbatch.filters import FilterResult, Kept
from bigbatch.filters.pipeline.decision import PAPER_MIN_SAMPLES, cached_eps_star
from bigbatch.filters.pipeline.rebuild import load_filtered_dataset
from bigbatch.filters.pipeline.results import keep as apply_filter
from bigbatch.viewer.settings import FilterSettings

_MAX_SOURCES = 2
_MAX_CLASSES = 2**16
NO_IMAGES = "There are no images:"  # followed by the reason


@dataclass(frozen=True)
class FilterSource:
    """A filter's result, read from a file or made from features, and the dataset that it belongs to."""

    saved: FilterResult
    dataset: Dataset | None
    notes: tuple[str, ...] = ()


def open_sources(given: Sequence[Path | str], data_dir: Path | None) -> list[FilterSource]:
    """Open one filter, or two filters of one dataset."""
    paths = [_find_file(Path(path)) for path in given]
    if not 1 <= len(paths) <= _MAX_SOURCES:
        raise Problem(f"one file is viewed or two are compared, got {len(paths)}: name one or two .npz")
    if len({path.resolve() for path in paths}) < len(paths):
        raise Problem(f"{paths[0]} is given twice: name two different files to compare")
    sources = [_open_source(path, data_dir) for path in paths]
    hashes = [source.saved.dataset_hash for source in sources]
    if len(set(hashes)) > 1:
        raise Problem(
            f"{paths[0]} and {paths[1]} belong to different datasets (hash {hashes[0][:10]} and {hashes[1][:10]}): "
            "compare filters of one dataset"
        )
    return sources


def _find_file(path: Path) -> Path:
    """Return the file itself, or the newest result in a folder."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise Problem(f"there is no {path}: give a kept.npz, its folder, or an .npz of features with labels")
    results = sorted(path.glob("*.npz"), key=lambda result: result.stat().st_mtime)
    if not results:
        raise Problem(f"{path} has no .npz: give the folder of a filter's result")
    if len(results) > 1:
        others = ", ".join(result.name for result in results[:-1])
        warnings.warn(
            Notice(f"{path} has {len(results)} results: {results[-1].name} is the newest; name {others} to see those"),
            stacklevel=2,
        )
    return results[-1]


def _open_source(path: Path, data_dir: Path | None) -> FilterSource:
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise Problem(f"{path} cannot be read ({error}): it is not a complete .npz; make it again") from error
    source = _open_result(path, data_dir) if "mask" in names else _filter_features(path, names)
    if len(source.saved.require_manifest().dataset.classes) > _MAX_CLASSES:
        raise Problem(f"{path} has more than {_MAX_CLASSES} classes: view a dataset with fewer")
    return source


def _open_result(path: Path, data_dir: Path | None) -> FilterSource:
    saved = filters.load(path)
    manifest = saved.require_manifest()
    if "map" not in saved.arrays or "min_samples" not in manifest.filter:
        raise Problem(
            f"{path} cannot be viewed, as filter '{manifest.filter['name']}' makes no map: "
            "view a result of the filter 'network'"
        )
    try:
        dataset = load_filtered_dataset(path, manifest, data_dir)
    except Problem as problem:
        return FilterSource(saved, None, (f"{NO_IMAGES} {problem}",))
    if dataset.hash != saved.dataset_hash:
        note = (
            f"{NO_IMAGES} the dataset found here has another hash ({dataset.hash[:10]}) than the one that was filtered "
            f"({saved.dataset_hash[:10]}); point --data-dir to that one"
        )
        return FilterSource(saved, None, (note,))
    return FilterSource(saved, dataset)


def _filter_features(path: Path, names: set[str]) -> FilterSource:
    """Filter features with the default options, on the map in the file or on one that the network filter makes."""
    if not names & {"features", "map"}:
        raise Problem(
            f"{path} holds {', '.join(sorted(names))}: give a filter's result (with 'mask'), "
            "or 'features' or a 'map' with 'labels'"
        )
    dataset_config = parts.configure("datasets", {"name": "arrays", "path": str(path)})
    dataset = datasets.load(dataset_config)
    smallest_class = int(np.unique(dataset.train.labels, return_counts=True)[1].min())
    name = "on_map" if "map" in names else "network"
    options = {"name": name, "network": str(path), "min_samples": min(PAPER_MIN_SAMPLES, smallest_class)}
    config = parts.configure("filters", options)
    if "map" in names:
        kept, origin = _filter_on_map(path, dataset, config), "the map is the one in the file"
    else:
        kept, origin = apply_filter(dataset, config), "the map was made by the stages of the network filter"
    saved = replace(filters.create_result(kept, dataset, dataset_config, config), path=path)
    return FilterSource(saved, dataset, (f"The file holds features: {origin}.",))


def _filter_on_map(path: Path, dataset: Dataset, config: parts.Config) -> Kept:
    """Return the result of filter `on_map` without clusters and knees, which take long for a million points."""
    options = config.model_dump()
    positions = read_map(path, len(dataset.train))
    labels = dataset.train.labels.numpy()
    eps_star = cached_eps_star(positions, labels, options["min_samples"])
    settings = FilterSettings.from_options(options, dataset.classes)
    settings = settings.with_decided_eps(eps_star, labels, len(dataset.classes))
    mask = torch.from_numpy(filters.mask_at(eps_star, labels, settings.eps_by_class()))
    network = {"network": options["network"], "hash": hash_array(positions)}
    return Kept(torch.from_numpy(eps_star), mask, {"network": network, "map": {"reducer": "given"}}, {"map": positions})
