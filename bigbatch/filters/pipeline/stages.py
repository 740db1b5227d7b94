"""From a network to a map: features, principal components, two dimensions. The output of each stage is cached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.datasets.reading.hashing import hash_array
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import cache, embedding, pca
from bigbatch.filters.pipeline.feature_files import Precision
from bigbatch.filters.pipeline.features import Features, extract_features
from bigbatch.filters.pipeline.results import load
from bigbatch.filters.pipeline.source import FeatureSource, open_feature_source
from bigbatch.libraries import package_version


class FeatureOptions(parts.Config):
    """Whose features, of which samples."""

    network: str  # the folder of a run, weights, mypkg.mod:Class, or a file of features
    model: str | dict[str, Any] | None = None  # which model the weights are for
    any_classes: bool = False  # take the features of a network that was trained for other classes
    precision: Precision = "float32"
    after: str | None = None  # an earlier kept.npz: only the samples it kept are used


class MapOptions(FeatureOptions):
    """How features are reduced to a map."""

    components: int = Field(50, ge=1)
    reducer: embedding.Reducer = "tsne"
    perplexity: float = Field(30.0, ge=1)
    iterations: int = Field(500, ge=1)  # of t-SNE, after 250 early ones
    seed: int = Field(0, ge=0)
    jobs: int = Field(1, ge=1)  # processes; the map depends on their number


@dataclass(frozen=True)
class FeatureMap:
    """Positions of the selected samples, and what the manifest says of how they were computed."""

    points: NDArray[np.float32]
    info: dict[str, Any]


def selected_rows(options: FeatureOptions, dataset: Dataset) -> NDArray[np.int64]:
    """Return the indices of the samples to filter."""
    if options.after is None:
        return np.arange(len(dataset.train))
    return load(options.after, dataset).mask.nonzero().squeeze(1).numpy()


def compute_features(
    options: FeatureOptions, dataset: Dataset, source: FeatureSource | None = None
) -> tuple[Features, dict[str, Any]]:
    """Return features of all samples, and what the manifest says of their source. All ranks take part."""
    if dataset.task != "classify":
        raise Problem(f"filter '{options.name}' needs classes, but text has none: use it on images")
    source = source or open_feature_source(options.network, options.model, dataset)
    features = extract_features(source, dataset, options.precision, any_classes=options.any_classes)
    about = {"hash": source.hash, "width": features.values.shape[1], "threads": torch.get_num_threads()}
    return features, source.about | about


def compute_map(features: Features, rows: NDArray[np.int64], options: MapOptions) -> FeatureMap:
    """Reduce features to principal components and these to a map, on this rank alone."""
    pca_fields = {"features": features.key, "rows": hash_array(rows), "components": options.components}
    projected = cache.load_or_compute(
        "pca", pca_fields, lambda: pca.project_features(features.values, rows, options.components)
    )
    components, explained = projected["points"], float(projected["variance"].sum())
    info = {"components": components.shape[1], "variance_explained": round(explained, 6)}
    how = options.model_dump(include={"reducer", "perplexity", "iterations", "seed", "jobs"})
    packages = embedding.REDUCER_PACKAGES[options.reducer]
    versions: dict[str, str | int | None] = {package: package_version(package) for package in packages}
    versions["map"] = embedding.VERSION
    key_fields = {"components": hash_array(components), **how, "versions": versions}

    def make() -> cache.Arrays:
        return {"points": embedding.embed(components, **how)}

    points = components if options.reducer == "none" else cache.load_or_compute("map", key_fields, make)["points"]
    return FeatureMap(points, info | {"map": how | {"versions": versions}})
