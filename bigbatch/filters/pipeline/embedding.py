"""The third stage: principal components become a map in two dimensions by t-SNE, UMAP or PaCMAP; or stay."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from bigbatch.datasets.reading.hashing import hash_array
from bigbatch.errors import Notice, Problem
from bigbatch.filters.pipeline import cache
from bigbatch.filters.pipeline.features import FeatureOptions, Features
from bigbatch.filters.pipeline.neighbours import nearest_neighbours
from bigbatch.filters.pipeline.pca import Points, principal_components
from bigbatch.libraries import import_library, package_version
from bigbatch.output.progress import stage

VERSION = 3  # increase it whenever the same options give another map: it is part of cache keys and manifests
Reducer = Literal["tsne", "umap", "pacmap", "none"]
REDUCER_PACKAGES: dict[Reducer, list[str]] = {  # the map depends on their versions
    "tsne": ["openTSNE", "numpy"],
    "umap": ["umap-learn", "numba"],
    "pacmap": ["pacmap", "numba"],
    "none": [],
}
_MIN_POINTS_FOR_FFT = 5_000  # points: below, the grid of the FFT costs more than Barnes and Hut's tree
_EARLY_ITERATIONS = 250
_ITERATIONS_BETWEEN_REPORTS = 25
_IGNORED_WARNINGS = ("random state is set", "Running NN Backend")


class MapOptions(FeatureOptions):
    """How features are reduced to a map."""

    components: int = Field(50, ge=1)
    reducer: Reducer = "tsne"
    perplexity: float = Field(30.0, ge=1)
    iterations: int = Field(500, ge=1)  # of t-SNE, after 250 early ones
    jobs: PositiveInt | Literal["auto"] = 1  # threads, auto: one per core; the map depends on their number


def compute_map(features: Features, rows: NDArray[np.int64], options: MapOptions) -> tuple[Points, dict[str, Any]]:
    """Reduce features to principal components and these to a map, on this rank alone. Each is cached.

    Return the positions of the selected samples, and what the manifest says of how they were computed.
    """
    components, explained = principal_components(features, rows, options.components)
    how = options.model_dump(include={"reducer", "perplexity", "iterations", "seed", "jobs"})
    how["jobs"] = len(os.sched_getaffinity(0)) if options.jobs == "auto" else options.jobs
    packages = REDUCER_PACKAGES[options.reducer]
    versions: dict[str, str | int | None] = {package: package_version(package) for package in packages}
    versions["map"] = VERSION
    points = components
    if options.reducer != "none":
        key_fields = {"components": hash_array(components), **how, "versions": versions}
        points = cache.load_or_compute("map", key_fields, lambda: {"points": embed(components, **how)})["points"]
    info = {"components": components.shape[1], "variance_explained": round(explained, 6)}
    return points, info | {"map": how | {"versions": versions}}


def embed(points: Points, reducer: Reducer, *, perplexity: float, iterations: int, seed: int, jobs: int) -> Points:
    """Return each point's position on the map: a function of points, options, seed and number of jobs.

    `none` returns the points: DBSCAN then uses the principal components.
    """
    if reducer == "none":
        return points
    needed = int(3 * perplexity) + 1
    if len(points) < needed:
        raise Problem(
            f"perplexity {perplexity:g} needs {needed - 1} neighbours but there are {len(points)} samples: "
            f"use perplexity={max(1, (len(points) - 1) // 3)} or less, or reducer=none"
        )
    try:
        if reducer == "tsne":
            return _embed_with_tsne(points, perplexity, iterations, seed, jobs)
        return _embed_with_umap(points, perplexity, seed) if reducer == "umap" else _embed_with_pacmap(points, seed)
    except (ValueError, TypeError, IndexError, ArithmeticError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).partition("\n")[0]
        raise Problem(
            f"reducer '{reducer}' cannot compute a map with perplexity={perplexity:g} and seed={seed} ({reason}): "
            "use others, or reducer=none"
        ) from error


def _embed_with_tsne(points: Points, perplexity: float, iterations: int, seed: int, jobs: int) -> Points:
    """openTSNE's FFT, from the first two components shrunk to a spread of 1e-4, as openTSNE's own PCA start."""
    tsne_class = import_library("openTSNE", "reducer 'tsne'").TSNE
    affinity = import_library("openTSNE.affinity", "reducer 'tsne'").PerplexityBasedNN
    # openTSNE's own approximate search is four times slower here and finds only nine neighbours of ten
    neighbours, distances = nearest_neighbours(points, int(3 * perplexity), jobs)
    precomputed = import_library("openTSNE.nearest_neighbors", "reducer 'tsne'").PrecomputedNeighbors
    affinities = affinity(perplexity=perplexity, knn_index=precomputed(neighbours, distances), n_jobs=jobs)
    start = np.pad(points[:, :2].astype(np.float64), ((0, 0), (0, max(0, 2 - points.shape[1]))))
    start /= max(start[:, 0].std() * 1e4, np.finfo(np.float64).tiny)
    with stage("t-SNE", _EARLY_ITERATIONS + iterations) as advance:
        done = 0

        def report(iteration: int, error: float, embedding: object) -> None:
            nonlocal done  # openTSNE counts from 0 again after the early iterations
            done += _ITERATIONS_BETWEEN_REPORTS
            advance(done, f"KL divergence {error:.3f}")

        tsne = tsne_class(
            early_exaggeration_iter=_EARLY_ITERATIONS,
            n_iter=iterations,
            negative_gradient_method="fft" if len(points) >= _MIN_POINTS_FOR_FFT else "bh",
            n_jobs=jobs,
            random_state=seed,
            callbacks=report,
            callbacks_every_iters=_ITERATIONS_BETWEEN_REPORTS,
        )
        return np.asarray(tsne.fit(affinities=affinities, initialization=start), np.float32)


def _embed_with_umap(points: Points, perplexity: float, seed: int) -> Points:
    umap = import_library("umap", "reducer 'umap'")
    with stage("UMAP", 1) as advance, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the single job that a seed requires
        reducer = umap.UMAP(n_components=2, n_neighbors=int(perplexity), random_state=seed, n_jobs=1)
        placed = np.asarray(reducer.fit_transform(points), np.float32)
        advance(1)
    return placed


def _embed_with_pacmap(points: Points, seed: int) -> Points:
    """Embed with its default of 10 neighbours: it has no perplexity."""
    with stage("PaCMAP", 1) as advance, warnings.catch_warnings(), _warnings_as_notices("pacmap"):
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", Notice)
        pacmap = import_library("pacmap", "reducer 'pacmap'")
        reducer = pacmap.PaCMAP(n_components=2, n_neighbors=10, random_state=seed, apply_pca=False)
        placed = np.asarray(reducer.fit_transform(points, init="pca"), np.float32)
        advance(1)
    return placed


@contextmanager
def _warnings_as_notices(package: str) -> Iterator[None]:
    """Turn warnings that a package logs into Notices, except that a seed was set, which was requested."""

    def notice(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if record.levelno >= logging.WARNING and not any(word in message for word in _IGNORED_WARNINGS):
            warnings.warn(Notice(f"{package} says: {message}"), stacklevel=2)
        return False  # no handler prints it

    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == package]
    loggers = [logging.getLogger(name) for name in {package, f"{package}.{package}", *names}]
    for logger in loggers:
        logger.addFilter(notice)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(notice)
