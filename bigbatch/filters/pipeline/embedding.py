"""The third stage: a map in two dimensions, by t-SNE (openTSNE's FFT), UMAP or PaCMAP; or none."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bigbatch.errors import Notice, Problem
from bigbatch.filters.pipeline.neighbours import nearest_neighbours
from bigbatch.libraries import import_library
from bigbatch.output.progress import stage

VERSION = 3  # increase it whenever the same options give another map: it is part of cache keys and manifests
Reducer = Literal["tsne", "umap", "pacmap", "none"]
REDUCER_PACKAGES: dict[Reducer, list[str]] = {  # the map depends on their versions
    "tsne": ["openTSNE", "numpy"],
    "umap": ["umap-learn", "numba"],
    "pacmap": ["pacmap", "numba"],
    "none": [],
}
MAX_EXACT_POINTS = 200_000  # points; the exact search grows with their square
_MIN_POINTS_FOR_FFT = 5_000  # points: below, the grid of the FFT costs more than Barnes and Hut's tree
_EARLY_ITERATIONS = 250
_ITERATIONS_BETWEEN_REPORTS = 25
_IGNORED_WARNINGS = ("random state is set", "Running NN Backend")

Points = NDArray[np.float32]


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
    tsne_class = import_library("openTSNE", "reducer 'tsne'").TSNE
    affinities = _compute_affinities(points, perplexity, seed, jobs)
    with stage("t-SNE", _EARLY_ITERATIONS + iterations) as advance:
        done = 0

        def report(iteration: int, error: float, embedding: Any) -> None:
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
        return np.asarray(tsne.fit(affinities=affinities, initialization=_initial_positions(points)), np.float32)


def _compute_affinities(points: Points, perplexity: float, seed: int, jobs: int) -> Any:
    affinity = import_library("openTSNE.affinity", "reducer 'tsne'").PerplexityBasedNN
    if len(points) > MAX_EXACT_POINTS:
        return affinity(points, perplexity=perplexity, method="approx", n_jobs=jobs, random_state=seed)
    # openTSNE's own approximate search is four times slower here and finds only nine neighbours of ten
    neighbours, distances = nearest_neighbours(points, int(3 * perplexity), jobs)
    precomputed = import_library("openTSNE.nearest_neighbors", "reducer 'tsne'").PrecomputedNeighbors
    return affinity(perplexity=perplexity, knn_index=precomputed(neighbours, distances), n_jobs=jobs)


def _initial_positions(points: Points) -> NDArray[np.float64]:
    """PCA initialisation: the first two components, shrunk to a spread of 1e-4 as openTSNE does it."""
    start = points[:, :2].astype(np.float64)
    if start.shape[1] < 2:
        start = np.pad(start, ((0, 0), (0, 2 - start.shape[1])))
    scaled: NDArray[np.float64] = start / max(start[:, 0].std() * 1e4, np.finfo(np.float64).tiny)
    return scaled


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
