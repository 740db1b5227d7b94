"""What `bigbatch view` is given: a filter's result, a folder of them, or a file of features."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bigbatch import datasets, filters, parts
from bigbatch.datasets import Dataset
from bigbatch.datasets.arrays import read_map
from bigbatch.datasets.reading.hashing import hash_array
from bigbatch.errors import Notice, Problem
from bigbatch.filters import Kept, Saved, load
from bigbatch.filters.pipeline.rebuild import dataset_of
from bigbatch.filters.pipeline.results import keep as filtered
from bigbatch.filters.pipeline.threshold import PAPER_MIN_SAMPLES, cached_eps_star
from bigbatch.viewer import decide

_MOST_DOCUMENTS = 2
_MOST_CLASSES = 2**16
_NEEDED = ("dataset", "filter", "info", "overrides", "working_folder", "working_folder_from_here")
NO_IMAGES = "There are no images:"  # then why


@dataclass(frozen=True)
class Opened:
    """A filter's result, read or made, and the data it is about."""

    saved: Saved
    dataset: Dataset | None
    notes: tuple[str, ...] = ()


def open_all(given: Sequence[Path | str], data_dir: Path | None) -> list[Opened]:
    """One document or two; two have to be about one dataset."""
    paths = [found for path in given for found in _files(Path(path))]
    if not 1 <= len(paths) <= _MOST_DOCUMENTS:
        raise Problem(f"one file is viewed or two are compared, got {len(paths)}: name one or two .npz")
    if len({path.resolve() for path in paths}) < len(paths):
        raise Problem(f"{paths[0]} is given twice: name two different files to compare")
    opened = [_open(path, data_dir) for path in paths]
    hashes = [one.saved.dataset_hash for one in opened]
    if len(set(hashes)) > 1:
        raise Problem(
            f"{paths[0]} and {paths[1]} are of unlike datasets (hash {hashes[0][:10]} and {hashes[1][:10]}): "
            "compare filters of one dataset"
        )
    return opened


def _files(path: Path) -> list[Path]:
    """A file, or the newest result of a folder."""
    if path.is_file():
        return [path]
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
    return [results[-1]]


def _open(path: Path, data_dir: Path | None) -> Opened:
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise Problem(f"{path} cannot be read ({error}): it is no whole .npz; make it again") from error
    opened = _of_filter(path, data_dir) if "mask" in names else _of_features(path, names)
    if len(opened.saved.manifest["dataset"]["classes"]) > _MOST_CLASSES:
        raise Problem(f"{path} has more than {_MOST_CLASSES} classes: the viewer cannot tell them apart")
    return opened


def _of_filter(path: Path, data_dir: Path | None) -> Opened:
    saved = load(path)
    about = saved.manifest.get("filter", {})
    if "map" not in saved.arrays or "min_samples" not in about:
        maker = f"filter '{about['name']}' makes no map" if about else "it has no manifest"
        raise Problem(f"{path} cannot be viewed, as {maker}: view a result of the filter 'network'")
    lacking = [key for key in _NEEDED if key not in saved.manifest]
    if lacking:
        raise Problem(f"the manifest of {path} has no '{lacking[0]}', as an early version left it: make it again")
    try:
        dataset = dataset_of(path, saved.manifest, data_dir)
    except Problem as problem:
        return Opened(saved, None, (f"{NO_IMAGES} {problem}",))
    if dataset.hash != saved.dataset_hash:
        return Opened(
            saved,
            None,
            (
                f"{NO_IMAGES} the dataset found here has another hash ({dataset.hash[:10]}) than the one that "
                f"was filtered ({saved.dataset_hash[:10]}); point --data-dir to that one",
            ),
        )
    return Opened(saved, dataset)


def _of_features(path: Path, names: set[str]) -> Opened:
    """Filtered with the default options, by the filter's own stations where no map is in the file."""
    if not names & {"features", "map"}:
        raise Problem(
            f"{path} holds {', '.join(sorted(names))}: give a filter's result (with 'mask'), "
            "or 'features' or a 'map' with 'labels'"
        )
    dataset_config = parts.configure("datasets", {"name": "arrays", "path": str(path)})
    dataset = datasets.load(dataset_config)
    options: dict[str, Any] = {"name": "on_map" if "map" in names else "network", "network": str(path)}
    options["min_samples"] = min(PAPER_MIN_SAMPLES, int(np.unique(dataset.train.labels, return_counts=True)[1].min()))
    config = parts.configure("filters", options)
    if "map" in names:
        kept, made = _on_given_map(path, dataset, config), "the map is the one in the file"
    else:
        kept, made = filtered(dataset, config), "the map was made by the stations of the network filter"
    saved = replace(filters.result_of(kept, dataset, dataset_config, config), path=path)
    return Opened(saved, dataset, (f"These are ready features: {made}.",))


def _on_given_map(path: Path, dataset: Dataset, config: Any) -> Kept:
    """What `on_map.keep` gives but for clusters and knees: a million points need none before somebody asks."""
    places = read_map(path, len(dataset.train))
    labels = dataset.train.labels.numpy()
    eps_star = cached_eps_star(places, labels, config.min_samples)
    settings = decide.filled(decide.of_config(config, dataset.classes), eps_star, labels, dataset.classes)
    mask = torch.from_numpy(filters.mask_at(eps_star, labels, settings.by_number()))
    places_hash = hash_array(places)
    info = {"network": {"network": config.network, "hash": places_hash}, "map": {"reducer": "given"}}
    return Kept(torch.from_numpy(eps_star), mask, info, {"map": places})
