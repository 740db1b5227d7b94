"""The last station, class by class: eps* of every sample, a radius for each class, and what is noise at it.

Arrays have a row for each training sample, or for each of those at hand. Where points are NaN a sample was not looked
at (an earlier filter had dropped it): its eps* is infinite, so that it is out at any radius, and it counts nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bigbatch.datasets.reading.hashing import hash_array
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import cache, dbscan
from bigbatch.filters.pipeline.dbscan import Floats
from bigbatch.output.progress import stage

PAPER_EPS, PAPER_MIN_SAMPLES = 0.5, 5
Mode = Literal["fraction", "paper", "manual"]
Labels = NDArray[np.integer[Any]]


def eps_star(points: NDArray[Any], labels: Labels, min_samples: int) -> Floats:
    """The smallest DBSCAN radius at which each sample is no noise among those of its class."""
    found = np.full(len(labels), np.inf)
    groups = _rows_by_class(labels, _has_point(points))
    with stage("eps*", len(groups)) as advance:
        for count, members in enumerate(groups.values(), start=1):
            found[members] = dbscan.eps_star(points[members], min_samples)
            advance(count)
    return found


def cached_eps_star(points: NDArray[Any], labels: Labels, min_samples: int) -> Floats:
    """The same, kept on disk under the hash of points and labels, since a million points take seconds."""
    hashes = {"points": hash_array(points), "labels": hash_array(labels)}
    key_fields = hashes | {"min_samples": min_samples}
    return cache.load_or_compute("eps", key_fields, lambda: {"eps_star": eps_star(points, labels, min_samples)})[
        "eps_star"
    ]


def decide_eps(
    eps_star: Floats,
    labels: Labels,
    mode: Mode,
    drop: float = 0.1,
    per_class: bool = True,
    eps: float | Mapping[int, float] | None = None,
) -> dict[int, float]:
    """The radius of each class that has samples, by the class's number.

    `fraction` drops a share of each class or over all, or less where samples share an eps*; `paper` takes 0.5;
    `manual` takes what is given, one for all or one for each class.
    """
    groups = _rows_by_class(labels, np.isfinite(eps_star))
    if mode == "paper":
        return dict.fromkeys(groups, PAPER_EPS)
    if mode == "manual":
        return _eps_by_class(list(groups), eps)
    if not per_class:
        one = _eps_for_fraction(eps_star[np.isfinite(eps_star)], drop) if groups else 0.0
        return dict.fromkeys(groups, one)
    return {index: _eps_for_fraction(eps_star[members], drop) for index, members in groups.items()}


def mask_at(eps_star: Floats, labels: Labels, eps_by_class: Mapping[int, float]) -> NDArray[np.bool_]:
    """True where a sample is kept: where the radius of its class is not below its eps*."""
    radius = np.full(int(labels.max(initial=-1)) + 1, -np.inf)
    for index, eps in eps_by_class.items():
        radius[index] = eps
    return radius[labels] >= eps_star


def cluster_labels(
    points: NDArray[Any], labels: Labels, eps_by_class: Mapping[int, float], min_samples: int
) -> NDArray[np.int64]:
    """The cluster of each sample within its class, counted from 0; -1 for noise and for what was not looked at."""
    clusters = np.full(len(labels), -1, np.int64)
    groups = _rows_by_class(labels, _has_point(points))
    with stage("clusters", len(groups)) as advance:
        for count, (index, members) in enumerate(groups.items(), start=1):
            if index in eps_by_class:
                clusters[members] = dbscan.cluster_labels(points[members], eps_by_class[index], min_samples)
            advance(count)
    return clusters


@dataclass(frozen=True)
class DropCounts:
    """How many samples a fraction asks for, and how many can go: those that share an eps* go together or stay."""

    requested: int
    dropped: int


def count_dropped(
    eps_star: Floats, labels: Labels, eps_by_class: Mapping[int, float], drop: float, per_class: bool
) -> DropCounts:
    considered = np.isfinite(eps_star)
    sizes = [len(members) for members in _rows_by_class(labels, considered).values()]
    requested = sum(_drop_count(drop, size) for size in (sizes if per_class else [sum(sizes)]))
    return DropCounts(requested, int((considered & ~mask_at(eps_star, labels, eps_by_class)).sum()))


def k_distance_knees(points: NDArray[Any], labels: Labels, min_samples: int) -> dict[int, float]:
    """The bend of each class's sorted distances: a hint only."""
    groups = _rows_by_class(labels, _has_point(points))
    return {index: dbscan.k_distance_knee(points[members], min_samples) for index, members in groups.items()}


def _has_point(points: NDArray[Any]) -> NDArray[np.bool_]:
    present: NDArray[np.bool_] = ~np.isnan(points[:, 0])
    return present


def _rows_by_class(labels: Labels, which: NDArray[np.bool_]) -> dict[int, NDArray[np.int64]]:
    """The rows of each class that has some, ascending, by the class's number."""
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
