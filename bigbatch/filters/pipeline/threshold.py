"""The last stage, class by class: eps* of every sample, a radius for each class, and the noise at that radius.

Arrays have one row per sample. The points of a sample that an earlier filter dropped are NaN: its eps* is infinite, so
that it is dropped at any radius, and it is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bigbatch.datasets.reading.hashing import hash_array
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import cache, dbscan
from bigbatch.filters.pipeline.dbscan import Floats
from bigbatch.output.progress import stage

PAPER_EPS, PAPER_MIN_SAMPLES = 0.5, 5
Mode = Literal["fraction", "paper", "manual"]
Labels = NDArray[np.integer]


def eps_star(points: NDArray[np.floating], labels: Labels, min_samples: int) -> Floats:
    """Return the smallest DBSCAN radius at which each sample is not noise among the samples of its class."""
    found = np.full(len(labels), np.inf)
    groups = _group_rows_by_class(labels, _has_point(points))
    with stage("eps*", len(groups)) as advance:
        for count, members in enumerate(groups.values(), start=1):
            found[members] = dbscan.eps_star(points[members], min_samples)
            advance(count)
    return found


def cached_eps_star(points: NDArray[np.floating], labels: Labels, min_samples: int) -> Floats:
    """Return eps_star(), cached by the hash of points and labels: a million points take seconds."""
    key_fields = {"points": hash_array(points), "labels": hash_array(labels), "min_samples": min_samples}
    arrays = cache.load_or_compute("eps", key_fields, lambda: {"eps_star": eps_star(points, labels, min_samples)})
    return arrays["eps_star"]


def decide_eps(
    eps_star: Floats,
    labels: Labels,
    mode: Mode,
    drop: float = 0.1,
    per_class: bool = True,
    eps: float | Mapping[int, float] | None = None,
) -> dict[int, float]:
    """Return the radius of each class that has samples, by class index.

    `fraction` drops a fraction of each class or over all, or less where samples have the same eps*; `paper` uses 0.5;
    `manual` uses the given eps, one for all classes or one for each.
    """
    groups = _group_rows_by_class(labels, np.isfinite(eps_star))
    if mode == "paper":
        return dict.fromkeys(groups, PAPER_EPS)
    if mode == "manual":
        return _eps_by_class(list(groups), eps)
    if not per_class:
        one = _eps_for_fraction(eps_star[np.isfinite(eps_star)], drop) if groups else 0.0
        return dict.fromkeys(groups, one)
    return {index: _eps_for_fraction(eps_star[members], drop) for index, members in groups.items()}


def mask_at(eps_star: Floats, labels: Labels, eps_by_class: Mapping[int, float]) -> NDArray[np.bool_]:
    """Return True where a sample is kept: where the radius of its class is at least its eps*."""
    radius = np.full(int(labels.max(initial=-1)) + 1, -np.inf)
    for index, eps in eps_by_class.items():
        radius[index] = eps
    return radius[labels] >= eps_star


def cluster_labels(
    points: NDArray[np.floating], labels: Labels, eps_by_class: Mapping[int, float], min_samples: int
) -> NDArray[np.int64]:
    """Return the cluster of each sample within its class, from 0; -1 for noise and for samples without points."""
    clusters = np.full(len(labels), -1, np.int64)
    groups = _group_rows_by_class(labels, _has_point(points))
    with stage("clusters", len(groups)) as advance:
        for count, (index, members) in enumerate(groups.items(), start=1):
            if index in eps_by_class:
                clusters[members] = dbscan.cluster_labels(points[members], eps_by_class[index], min_samples)
            advance(count)
    return clusters


def count_requested_drops(eps_star: Floats, labels: Labels, drop: float, per_class: bool) -> int:
    """Return how many samples a fraction requests; fewer are dropped where samples have the same eps*."""
    sizes = [len(members) for members in _group_rows_by_class(labels, np.isfinite(eps_star)).values()]
    return sum(_drop_count(drop, size) for size in (sizes if per_class else [sum(sizes)]))


def k_distance_knees(points: NDArray[np.floating], labels: Labels, min_samples: int) -> dict[int, float]:
    """Return the knee of each class's sorted k-distances: a hint only."""
    groups = _group_rows_by_class(labels, _has_point(points))
    return {index: dbscan.k_distance_knee(points[members], min_samples) for index, members in groups.items()}


def _has_point(points: NDArray[np.floating]) -> NDArray[np.bool_]:
    present: NDArray[np.bool_] = ~np.isnan(points[:, 0])
    return present


def _group_rows_by_class(labels: Labels, which: NDArray[np.bool_]) -> dict[int, NDArray[np.int64]]:
    """Return the rows of each class that has any, ascending, by class index."""
    rows = np.flatnonzero(which)
    by_class = rows[np.argsort(labels[rows], kind="stable")]
    classes, begins = np.unique(labels[by_class], return_index=True)
    return dict(zip(classes.tolist(), np.split(by_class, begins[1:]), strict=False))  # of no rows: one empty piece


def _drop_count(drop: float, size: int) -> int:
    return min(round(drop * size), size - 1)


def _eps_for_fraction(eps_star: Floats, drop: float) -> float:
    return dbscan.eps_for_drop_count(eps_star, _drop_count(drop, len(eps_star)))


def _eps_by_class(classes: list[int], given: float | Mapping[int, float] | None) -> dict[int, float]:
    if given is None:
        raise Problem("mode manual needs eps: give one for all classes, or one for each")
    if not isinstance(given, Mapping):
        return dict.fromkeys(classes, float(given))
    missing = [index for index in classes if index not in given]
    if missing:
        raise Problem(f"eps names no radius for class {missing[0]}: give one for each class")
    return {index: float(given[index]) for index in classes}
