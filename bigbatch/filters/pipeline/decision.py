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
from torch import Tensor

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
CHANGEABLE = ("mode", "min_samples", "drop", "per_class", "eps")
Mode = Literal["fraction", "paper", "manual"]
Labels = NDArray[np.integer]


class DecisionOptions(MapOptions):
    """`fraction` drops a fraction, `paper` uses eps 0.5 and min_samples 5, `manual` uses the given eps."""

    mode: Mode = "fraction"
    min_samples: int = Field(PAPER_MIN_SAMPLES, ge=1)
    drop: float = Field(0.1, ge=0, lt=1)  # fraction: of each class, or over all
    per_class: bool = True
    eps: PositiveFloat | dict[str, PositiveFloat] | None = None  # manual: one for all, or one for each class by name

    @model_validator(mode="after")
    def _manual_needs_eps(self) -> DecisionOptions:
        if (self.mode == "manual") != (self.eps is not None):
            raise ValueError(f"mode {self.mode} with eps {self.eps}: set eps for mode=manual, and only for it")
        if self.mode == "paper" and self.min_samples != PAPER_MIN_SAMPLES:
            raise ValueError(f"mode paper has min_samples {PAPER_MIN_SAMPLES}: use mode=manual with eps=0.5 for others")
        return self


def refuse_small_classes(labels: Tensor, classes: Sequence[str], min_samples: int) -> None:
    counts = torch.bincount(labels, minlength=len(classes)).tolist()
    for name, count in zip(classes, counts, strict=True):
        if 0 < count < min_samples:
            raise Problem(
                f"class {name} has {count} samples, fewer than min_samples {min_samples}, so all would be noise: "
                f"use min_samples={count} or less"
            )


def eps_star(points: NDArray[np.floating], labels: Labels, min_samples: int) -> Floats:
    """Return the smallest DBSCAN radius at which each sample is not noise among the samples of its class."""
    found = np.full(len(labels), np.inf)
    groups = _group_rows_by_class(labels, ~np.isnan(points[:, 0]))
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

    `fraction` drops a fraction of each class or over all, or less where samples have the same eps*, but never all;
    `paper` uses 0.5; `manual` uses the given eps, one for all classes or one for each.
    """
    considered = np.isfinite(eps_star)
    groups = _group_rows_by_class(labels, considered)
    if mode == "paper":
        return dict.fromkeys(groups, PAPER_EPS)
    if mode == "manual":
        if eps is None:
            raise Problem("mode manual needs eps: give one for all classes, or one for each")
        given = eps if isinstance(eps, Mapping) else dict.fromkeys(groups, eps)
        for index in groups:
            if index not in given:
                raise Problem(f"eps names no radius for class {index}: give one for each class")
        return {index: float(given[index]) for index in groups}

    def quantile(values: Floats) -> float:
        return float(np.sort(values)[len(values) - 1 - _drop_count(drop, len(values))])

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
    with stage("clusters", len(groups)) as advance:
        for count, (index, members) in enumerate(groups.items(), start=1):
            if index in eps_by_class:
                clusters[members] = dbscan.cluster_labels(points[members], eps_by_class[index], min_samples)
            advance(count)
    return clusters


def _group_rows_by_class(labels: Labels, which: NDArray[np.bool_]) -> dict[int, NDArray[np.int64]]:
    """Return the rows of each class that has any, ascending, by class index."""
    rows = np.flatnonzero(which)
    by_class = rows[np.argsort(labels[rows], kind="stable")]
    classes, begins = np.unique(labels[by_class], return_index=True)
    return dict(zip(classes.tolist(), np.split(by_class, begins[1:]), strict=False))  # of no rows: one empty piece


def _drop_count(drop: float, size: int) -> int:
    return min(round(drop * size), size - 1)


def decide(
    points: NDArray[np.float32],
    eps_star: Floats,
    labels: NDArray[np.int64],
    classes: Sequence[str],
    config: DecisionOptions,
) -> Kept:
    """Decide by positions on the map and eps* which samples are kept; `decide_again` does so for a saved result."""
    considered = np.isfinite(eps_star)
    groups = _group_rows_by_class(labels, considered)
    given: float | dict[int, float] | None
    if isinstance(config.eps, dict):  # from class names to class indices
        wrong = sorted(({classes[index] for index in groups} - set(config.eps)) | (set(config.eps) - set(classes)))
        if wrong:
            names = ", ".join(classes)
            raise Problem(
                f"eps must name each class once, but is wrong for {', '.join(wrong)}: the classes are {names}"
            )
        given = {classes.index(name): radius for name, radius in config.eps.items()}
    else:
        given = config.eps
    eps = decide_eps(eps_star, labels, config.mode, config.drop, config.per_class, given)
    mask = torch.from_numpy(mask_at(eps_star, labels, eps))
    advice = {
        "fraction": "use per_class=true or a smaller drop",
        "paper": f"use mode=fraction, or mode=manual with a larger eps ({FIXED_EPS})",
        "manual": f"use a larger eps ({FIXED_EPS})",
    }[config.mode]
    considered_labels = torch.from_numpy(labels[considered])
    refuse_empty_classes(mask[considered], considered_labels, classes, f"filter '{config.name}'", advice)
    notes = [] if config.mode == "fraction" else [FIXED_EPS]
    notes.append("the k-distance knee is a hint only: small changes move it far")
    sizes = [len(members) for members in groups.values()] if config.per_class else [int(considered.sum())]
    requested = sum(_drop_count(config.drop, size) for size in sizes)
    dropped = int((considered & ~mask.numpy()).sum())
    if config.mode == "fraction" and dropped < requested:
        notes.append(
            f"{requested - dropped:,} fewer samples than the {requested:,} requested are dropped: "
            "samples that share an eps* are dropped together or not at all"
        )
    with_points = _group_rows_by_class(labels, ~np.isnan(points[:, 0]))
    knees = {index: dbscan.k_distance_knee(points[rows], config.min_samples) for index, rows in with_points.items()}
    info = {
        "min_samples": config.min_samples,
        "mode": config.mode,
        "eps": {classes[index]: radius for index, radius in eps.items()},
        "k_distance_knee": {classes[index]: round(knee, 4) for index, knee in knees.items()},
        "notes": notes,
    }
    clusters = cluster_labels(points, labels, eps, config.min_samples)
    two_columns = np.pad(points[:, :2], ((0, 0), (0, max(0, 2 - points.shape[1]))))
    arrays: dict[str, NDArray[Any]] = {"map": two_columns, "cluster": clusters}
    if points.shape[1] != 2:
        arrays["points"] = points  # what eps* was computed on is not the map then
    return Kept(torch.from_numpy(eps_star), mask, info, arrays)


def decide_again(
    saved: FilterResult, overrides: Iterable[dict[str, Any]] | None = None, **settings: Any
) -> FilterResult:
    """Return the result with another mode, min_samples, drop, per_class or eps; `save` writes it.

    Other options stay. eps, one number or one per class name, is used by mode=manual only. `overrides` replace the
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
    config = parts.configure("filters", options | ({} if options["mode"] == "manual" else {"eps": None}))
    assert isinstance(config, DecisionOptions)
    labels, points = saved.arrays["label"], saved.arrays.get("points", saved.arrays["map"])
    classes = manifest.dataset.classes
    refuse_small_classes(saved.labels[torch.from_numpy(~np.isnan(points[:, 0]))], classes, config.min_samples)
    same = config.min_samples == manifest.filter["min_samples"]
    score = saved.score.numpy() if same else eps_star(points, labels, config.min_samples)
    decision = decide(points, score, labels, classes, config)
    manifest = replace(manifest, filter=config.model_dump(mode="json"), info=manifest.info | decision.info)
    entries = manifest.overrides if overrides is None else overrides
    again = replace(saved, score=torch.from_numpy(score), arrays=saved.arrays | decision.arrays, manifest=manifest)
    result = apply_overrides(again, decision.mask, entries)
    refuse_empty_classes(result.mask, result.labels, classes, "the overrides", "undo some of them")
    return result
