"""From a network to a map: features, principal components, two dimensions; each station's output is cached."""

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
    after: str | None = None  # an earlier kept.npz: only what it kept is looked at


class MapOptions(FeatureOptions):
    """How features become a map."""

    components: int = Field(50, ge=1)
    reducer: embedding.Reducer = "tsne"
    perplexity: float = Field(30.0, ge=1)
    iterations: int = Field(500, ge=1)  # of t-SNE, after 250 early ones
    seed: int = Field(0, ge=0)
    jobs: int = Field(1, ge=1)  # another number gives another map


@dataclass(frozen=True)
class FeatureMap:
    """Positions of the selected samples, and what the manifest says of how they were computed."""

    points: NDArray[np.float32]
    info: dict[str, Any]


def selected_rows(options: FeatureOptions, dataset: Dataset) -> NDArray[np.int64]:
    """The numbers of the samples to look at."""
    if options.after is None:
        return np.arange(len(dataset.train))
    return load(options.after, dataset).mask.nonzero().squeeze(1).numpy()


def compute_features(
    options: FeatureOptions, dataset: Dataset, source: FeatureSource | None = None
) -> tuple[Features, dict[str, Any]]:
    """Features of all samples, and what the manifest says of whose they are. All ranks take part."""
    if dataset.task != "classify":
        raise Problem(f"filter '{options.name}' needs classes, but text has none: use it on images")
    source = source or open_feature_source(options.network, options.model, dataset)
    features = extract_features(source, dataset, options.precision, any_classes=options.any_classes)
    about = {"hash": source.hash, "width": features.values.shape[1], "threads": torch.get_num_threads()}
    return features, source.about | about


def compute_components(
    features: Features, rows: NDArray[np.int64], components: int
) -> tuple[NDArray[np.float32], dict[str, Any]]:
    key_fields = {"features": features.key, "rows": hash_array(rows), "components": components}
    made = cache.load_or_compute("pca", key_fields, lambda: pca.project_features(features.values, rows, components))
    explained = float(made["variance"].sum())
    return made["points"], {"components": made["points"].shape[1], "variance_explained": round(explained, 6)}


def compute_map(features: Features, rows: NDArray[np.int64], options: MapOptions) -> FeatureMap:
    """The rank that calls this does all of it."""
    components, info = compute_components(features, rows, options.components)
    how: dict[str, Any] = {
        "reducer": options.reducer,
        "perplexity": options.perplexity,
        "iterations": options.iterations,
        "seed": options.seed,
        "jobs": options.jobs,
    }
    versions: dict[str, Any] = {
        package: package_version(package) for package in embedding.reducer_packages(options.reducer)
    }
    versions["map"] = embedding.VERSION
    key_fields = {"components": hash_array(components), **how, "versions": versions}

    def make() -> cache.Arrays:
        return {"points": embedding.embed(components, **how)}

    points = components if options.reducer == "none" else cache.load_or_compute("map", key_fields, make)["points"]
    return FeatureMap(points, info | {"map": how | {"versions": versions}})
