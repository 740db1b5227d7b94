"""The last stage, class by class: eps* of every sample, a radius for each class, and the noise at that radius.

Arrays have one row per sample. The points of a sample that an earlier filter dropped are NaN: its eps* is infinite, so
that it is dropped at any radius, and it is not counted. The decision can be changed afterwards on the same map.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, model_validator

from bigbatch import parts
from bigbatch.datasets.reading.hashing import hash_array
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import cache, dbscan
from bigbatch.filters.pipeline.dbscan import Floats
from bigbatch.filters.pipeline.embedding import MapOptions
from bigbatch.filters.pipeline.results import FilterResult, Kept, apply_overrides, refuse_empty_classes
from bigbatch.output.progress import stage

PAPER_EPS, PAPER_MIN_SAMPLES = 0.5, 5
FIXED_EPS = (
    "a fixed eps cannot be compared across dataset sizes and networks: on CIFAR-10's 50,000 an eps of 0.5 drops "
    "from 5 % to 88 % depending on the features"
)
MAX_PAIRS = 60_000_000  # of neighbours within a class: half a gigabyte
CHANGEABLE = ("mode", "min_samples", "drop", "per_class", "eps")
Mode = Literal["fraction", "paper", "manual", "relative"]
Labels = NDArray[np.integer]


class DecisionOptions(MapOptions):
    """How a radius is chosen for each class.

    `fraction` drops a fraction, `paper` uses eps 0.5 and min_samples 5, `manual` uses the given eps, and `relative` the
    given eps times the class's median k-distance, so that one setting suits other sizes and networks.
    """

    mode: Mode = "fraction"
    min_samples: int = Field(PAPER_MIN_SAMPLES, ge=1)
    drop: float = Field(0.1, ge=0, lt=1)  # fraction: of each class, or over all
    per_class: bool = True
    eps: PositiveFloat | dict[str, PositiveFloat] | None = None  # one for all, or one for each class by name

    @model_validator(mode="after")
    def _eps_belongs_to_mode(self) -> DecisionOptions:
        if (self.mode in ("manual", "relative")) != (self.eps is not None):
            raise ValueError(f"mode {self.mode} with eps {self.eps}: set eps for mode=manual or relative only")
        if self.mode == "paper" and self.min_samples != PAPER_MIN_SAMPLES:
            raise ValueError(f"mode paper has min_samples {PAPER_MIN_SAMPLES}: use mode=manual with eps=0.5 for others")
        return self


def eps_star(points: NDArray[np.floating], labels: Labels, min_samples: int) -> Floats:
    """Return the smallest DBSCAN radius at which each sample is not noise among the samples of its class.

    Radii that are equal are made distinct in their last bits, so that a fraction is dropped exactly: they grow with the
    sample's own k-distance, then with its number. In a class of fewer than min_samples all are zero: it is kept whole.
    """
    return _compute_radii(points, labels, min_samples)["eps_star"]


def cached_eps_star(points: NDArray[np.floating], labels: Labels, min_samples: int) -> Floats:
    """Return eps_star(), cached by the hash of points and labels: a million points take seconds."""
    return _cached_radii(points, labels, min_samples)["eps_star"]


def _cached_radii(points: NDArray[np.floating], labels: Labels, min_samples: int) -> cache.Arrays:
    key_fields = {"points": hash_array(points), "labels": hash_array(labels), "min_samples": min_samples, "version": 2}
    return cache.load_or_compute("eps", key_fields, lambda: _compute_radii(points, labels, min_samples))


def _compute_radii(points: NDArray[np.floating], labels: Labels, min_samples: int) -> cache.Arrays:
    found, k_distance = np.full(len(labels), np.inf), np.full(len(labels), np.inf)
    groups = _group_rows_by_class(labels, ~np.isnan(points[:, 0]))
    with stage("eps*", len(groups)) as advance:
        for count, members in enumerate(groups.values(), start=1):
            found[members], k_distance[members] = dbscan.radii(points[members], min_samples)
            advance(count)
    rows = np.flatnonzero(np.isfinite(found))
    order = rows[np.lexsort((k_distance[rows], found[rows]))]
    # as integers, the bits of positive floats are in the same order, and neighbouring floats differ by one
    bits, steps = found[order].view(np.int64), np.arange(len(order))
    found[order] = (np.maximum.accumulate(bits - steps) + steps).view(np.float64)
    found[np.isinf(found) & ~np.isnan(points[:, 0])] = 0  # classes that are too small for noise
    return {"eps_star": found, "k_distance": k_distance}


def decide_eps(
    eps_star: Floats,
    labels: Labels,
    mode: Mode,
    drop: float = 0.1,
    per_class: bool = True,
    eps: float | Mapping[int, float] | None = None,
) -> dict[int, float]:
    """Return the radius of each class that has samples, by class index.

    `fraction` drops a fraction of each class or over all, but never a whole class; `paper` uses 0.5; `manual` uses the
    given eps, one for all classes or one for each. (`relative` needs the points: it is decided as `manual`.)
    """
    considered = np.isfinite(eps_star)
    groups = _group_rows_by_class(labels, considered)
    if mode == "paper":
        return dict.fromkeys(groups, PAPER_EPS)
    if mode != "fraction":
        if eps is None:
            raise Problem(f"mode {mode} needs eps: give one for all classes, or one for each")
        given = eps if isinstance(eps, Mapping) else dict.fromkeys(groups, eps)
        for index in groups:
            if index not in given:
                raise Problem(f"eps names no radius for class {index}: give one for each class")
        return {index: float(given[index]) for index in groups}

    def quantile(values: Floats) -> float:
        return float(np.sort(values)[len(values) - 1 - min(round(drop * len(values)), len(values) - 1)])

    if per_class or not groups:
        return {index: quantile(eps_star[members]) for index, members in groups.items()}
    return dict.fromkeys(groups, quantile(eps_star[considered]))


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
    groups = _group_rows_by_class(labels, ~np.isnan(points[:, 0]))
    noise = ~mask_at(cached_eps_star(points, labels, min_samples), labels, eps_by_class)
    with stage("clusters", len(groups)) as advance:
        for count, (index, members) in enumerate(groups.items(), start=1):
            if index in eps_by_class:
                eps = eps_by_class[index]
                if len(members) ** 2 > MAX_PAIRS and (pairs := dbscan.estimate_pairs(points[members], eps)) > MAX_PAIRS:
                    raise Problem(
                        f"at eps {eps:g} class {index} has {pairs / 1e6:,.0f} million pairs of neighbours, too many to "
                        "cluster in memory: choose a smaller eps for it"
                    )
                clusters[members] = dbscan.cluster_labels(points[members], eps, min_samples, noise[members])
            advance(count)
    return clusters


def _group_rows_by_class(labels: Labels, which: NDArray[np.bool_]) -> dict[int, NDArray[np.int64]]:
    """Return the rows of each class that has any, ascending, by class index."""
    rows = np.flatnonzero(which)
    by_class = rows[np.argsort(labels[rows], kind="stable")]
    classes, begins = np.unique(labels[by_class], return_index=True)
    return dict(zip(classes.tolist(), np.split(by_class, begins[1:]), strict=False))  # of no rows: one empty piece


def decide(
    points: NDArray[np.float32], labels: NDArray[np.int64], classes: Sequence[str], config: DecisionOptions
) -> Kept:
    """Decide by positions on the map which samples are kept; `decide_again` does so for a saved result."""
    radii = _cached_radii(points, labels, config.min_samples)
    eps_star, k_distance = radii["eps_star"], radii["k_distance"]
    considered = np.isfinite(eps_star)
    groups = _group_rows_by_class(labels, considered)
    small = [classes[index] for index, members in groups.items() if len(members) < config.min_samples]
    if groups and len(small) == len(groups):
        raise Problem(
            f"every class has fewer than min_samples {config.min_samples} samples, so there is no noise: "
            f"use min_samples={max(map(len, groups.values()))} or less"
        )
    eps = decide_eps(eps_star, labels, config.mode, config.drop, config.per_class, _given_eps(config, groups, classes))
    if config.mode == "relative":
        # a class that is too small has no k-distance; at any radius it is kept
        medians = {index: float(np.median(k_distance[members])) for index, members in groups.items()}
        eps = {index: radius * (medians[index] if np.isfinite(medians[index]) else 1) for index, radius in eps.items()}
    mask = torch.from_numpy(mask_at(eps_star, labels, eps))
    advice = {
        "fraction": "use per_class=true or a smaller drop",
        "paper": f"use mode=fraction or relative, or mode=manual with a larger eps ({FIXED_EPS})",
        "manual": f"use a larger eps ({FIXED_EPS})",
        "relative": "use a larger eps",
    }[config.mode]
    considered_labels = torch.from_numpy(labels[considered])
    refuse_empty_classes(mask[considered], considered_labels, classes, f"filter '{config.name}'", advice)
    notes = [FIXED_EPS] if config.mode in ("paper", "manual") else []
    notes.append("the k-distance knee is a hint only: small changes move it far")
    if small:
        notes.append(f"classes with fewer than min_samples {config.min_samples} are kept whole: {', '.join(small)}")
    two_columns = np.pad(points[:, :2], ((0, 0), (0, max(0, 2 - points.shape[1]))))
    arrays: dict[str, NDArray[Any]] = {"map": two_columns}
    try:
        arrays["cluster"] = cluster_labels(points, labels, eps, config.min_samples)
    except Problem as problem:
        notes.append(f"there are no clusters: {problem}")
    if points.shape[1] != 2:
        arrays["points"] = points  # what eps* was computed on is not the map then
    large = {index: members for index, members in groups.items() if len(members) >= config.min_samples}
    info = {
        "min_samples": config.min_samples,
        "mode": config.mode,
        "eps": {classes[index]: radius for index, radius in eps.items()},
        "k_distance_knee": {
            classes[index]: round(dbscan.find_knee(k_distance[members]), 4) for index, members in large.items()
        },
        "notes": notes,
    }
    return Kept(torch.from_numpy(eps_star), mask, info, arrays)


def _given_eps(
    config: DecisionOptions, groups: Mapping[int, object], classes: Sequence[str]
) -> float | dict[int, float] | None:
    """Return the eps of a config, by class index where it is by class name."""
    if not isinstance(config.eps, dict):
        return config.eps
    wrong = sorted(({classes[index] for index in groups} - set(config.eps)) | (set(config.eps) - set(classes)))
    if wrong:
        raise Problem(
            f"eps must name each class once, but is wrong for {', '.join(wrong)}: the classes are {', '.join(classes)}"
        )
    return {classes.index(name): radius for name, radius in config.eps.items()}


def decide_again(
    saved: FilterResult, overrides: Iterable[dict[str, Any]] | None = None, **settings: Any
) -> FilterResult:
    """Return the result with another mode, min_samples, drop, per_class or eps; `save` writes it.

    Other options stay. eps, one number or one per class name, is for mode manual or relative. `overrides` replace the
    saved ones, which otherwise still take precedence over the new decision.
    """
    manifest = saved.require_manifest()
    options = manifest.filter | settings
    if "mode" not in manifest.filter or "map" not in saved.arrays:
        raise Problem(
            f"filter file {saved.path} is by '{options['name']}', so there is no radius to choose: "
            "give a result of the filter 'network'"
        )
    unknown = sorted(set(settings) - set(CHANGEABLE))
    if unknown:
        raise Problem(
            f"'{unknown[0]}' would change the map, which is computed already: change one of {', '.join(CHANGEABLE)}"
        )
    config = parts.configure("filters", options | ({} if options["mode"] in ("manual", "relative") else {"eps": None}))
    assert isinstance(config, DecisionOptions)
    labels, points = saved.arrays["label"], saved.arrays.get("points", saved.arrays["map"])
    classes = manifest.dataset.classes
    decision = decide(points, labels, classes, config)
    manifest = replace(manifest, filter=config.model_dump(mode="json"), info=manifest.info | decision.info)
    entries = manifest.overrides if overrides is None else overrides
    kept_arrays = {name: values for name, values in saved.arrays.items() if name != "cluster"}
    again = replace(saved, score=decision.score, arrays=kept_arrays | decision.arrays, manifest=manifest)
    result = apply_overrides(again, decision.mask, entries)
    refuse_empty_classes(result.mask, result.labels, classes, "the overrides", "undo some of them")
    return result
