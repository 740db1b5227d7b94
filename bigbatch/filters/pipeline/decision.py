"""The last stage: which samples are noise, by options that can be changed afterwards on the same map."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import threshold
from bigbatch.filters.pipeline.results import FilterResult, Kept, apply_overrides, refuse_empty_classes
from bigbatch.filters.pipeline.stages import MapOptions
from bigbatch.filters.pipeline.threshold import PAPER_MIN_SAMPLES, Mode, eps_star

FIXED_EPS = (
    "a fixed eps cannot be compared across dataset sizes and networks: on CIFAR-10's 50,000 an eps of 0.5 drops "
    "from 5 % to 88 % depending on the features"
)


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


def decide(
    points: NDArray[np.float32],
    eps_star: NDArray[np.float64],
    labels: NDArray[np.int64],
    classes: Sequence[str],
    config: DecisionOptions,
) -> Kept:
    """Decide by positions on the map and eps* which samples are kept; `decide_again` does so for a saved result."""
    considered = np.isfinite(eps_star)
    given = _eps_by_class_index(config.eps, labels[considered], classes)
    eps = threshold.decide_eps(eps_star, labels, config.mode, config.drop, config.per_class, given)
    mask = torch.from_numpy(threshold.mask_at(eps_star, labels, eps))
    refuse_empty_classes(
        mask[considered], torch.from_numpy(labels[considered]), classes, f"filter '{config.name}'", _suggest_fix(config)
    )
    knees = threshold.k_distance_knees(points, labels, config.min_samples)
    info = {
        "min_samples": config.min_samples,
        "mode": config.mode,
        "eps": {classes[index]: radius for index, radius in eps.items()},
        "k_distance_knee": {classes[index]: round(knee, 4) for index, knee in knees.items()},
        "notes": _collect_notes(eps_star, labels, mask, config),
    }
    clusters = threshold.cluster_labels(points, labels, eps, config.min_samples)
    two_columns = np.pad(points[:, :2], ((0, 0), (0, max(0, 2 - points.shape[1]))))
    arrays: dict[str, NDArray[Any]] = {"map": two_columns, "cluster": clusters}
    if points.shape[1] != 2:
        arrays["points"] = points  # what eps* was computed on is not the map then
    return Kept(torch.from_numpy(eps_star), mask, info, arrays)


def _eps_by_class_index(
    eps: float | dict[str, float] | None, labels: NDArray[np.int64], classes: Sequence[str]
) -> float | dict[int, float] | None:
    """Turn a radius per class name into a radius per class index."""
    if not isinstance(eps, dict):
        return eps
    needed = {classes[index] for index in np.unique(labels)}
    wrong = sorted((needed - set(eps)) | (set(eps) - set(classes)))
    if wrong:
        raise Problem(
            f"eps must name each class once, but is wrong for {', '.join(wrong)}: the classes are {', '.join(classes)}"
        )
    return {classes.index(name): radius for name, radius in eps.items()}


def _suggest_fix(config: DecisionOptions) -> str:
    if config.mode == "fraction":
        return "use per_class=true or a smaller drop"
    if config.mode == "paper":
        return f"use mode=fraction, or mode=manual with a larger eps ({FIXED_EPS})"
    return f"use a larger eps ({FIXED_EPS})"


def _collect_notes(
    eps_star: NDArray[np.float64], labels: NDArray[np.int64], mask: Tensor, config: DecisionOptions
) -> list[str]:
    notes = ["the k-distance knee is a hint only: small changes move it far"]
    if config.mode != "fraction":
        return [FIXED_EPS, *notes]
    requested = threshold.count_requested_drops(eps_star, labels, config.drop, config.per_class)
    dropped = int((np.isfinite(eps_star) & ~mask.numpy()).sum())
    if dropped < requested:
        notes.append(
            f"{requested - dropped:,} fewer samples than the {requested:,} requested are dropped: "
            "samples that share an eps* are dropped together or not at all"
        )
    return notes


CHANGEABLE = ("mode", "min_samples", "drop", "per_class", "eps")


def decide_again(
    saved: FilterResult, overrides: Iterable[dict[str, Any]] | None = None, **settings: Any
) -> FilterResult:
    """Return the result with another mode, min_samples, drop, per_class or eps; `save` writes it.

    Other options stay. eps, one number or one per class name, is used by mode=manual only. `overrides` replace the
    saved ones, which otherwise still take precedence over the new decision.
    """
    manifest = saved.require_manifest()
    config = _change_config(saved, manifest.filter, settings)
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


def _change_config(saved: FilterResult, options: dict[str, Any], settings: dict[str, Any]) -> DecisionOptions:
    if "mode" not in options or "map" not in saved.arrays:
        raise Problem(
            f"filter file {saved.path} is by '{options['name']}', so there is no radius to choose: "
            "give a result of the filter 'network'"
        )
    unknown = sorted(set(settings) - set(CHANGEABLE))
    if unknown:
        raise Problem(
            f"'{unknown[0]}' would change the map, which is computed already: change one of {', '.join(CHANGEABLE)}"
        )
    options = options | settings
    config = parts.configure("filters", options | ({} if options["mode"] == "manual" else {"eps": None}))
    assert isinstance(config, DecisionOptions)
    return config
