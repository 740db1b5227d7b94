"""Drop what DBSCAN calls noise, class by class, on a map of a trained network's features (Gahlot et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor, nn

from bigbatch.datasets import Dataset
from bigbatch.datasets.reading.hashing import hash_array
from bigbatch.errors import Problem
from bigbatch.filters import _cache, _decide, _ranks
from bigbatch.filters._decide import PAPER_MIN_SAMPLES, Mode
from bigbatch.filters._kept import Kept
from bigbatch.filters._size import refuse_empty_classes
from bigbatch.filters._stations import MapOptions, Placed, features_of, place, rows_of

if TYPE_CHECKING:
    from bigbatch.filters._source import Source

FIXED_EPS = (
    "a fixed eps means nothing across dataset sizes and networks: on CIFAR-10's 50,000 an eps of 0.5 drops "
    "from 5 % to 88 % depending on the features"
)


class Config(MapOptions):
    """`fraction` drops a share, `paper` uses eps 0.5 and min_samples 5, `manual` the eps that is given."""

    mode: Mode = "fraction"
    min_samples: int = Field(PAPER_MIN_SAMPLES, ge=1)
    drop: float = Field(0.1, ge=0, lt=1)  # fraction: of each class, or over all
    per_class: bool = True
    eps: PositiveFloat | dict[str, PositiveFloat] | None = None  # manual: one for all, or one for each class by name

    @model_validator(mode="after")
    def _manual_needs_eps(self) -> Config:
        if (self.mode == "manual") != (self.eps is not None):
            raise ValueError(f"mode {self.mode} with eps {self.eps}: set eps for mode=manual, and only for it")
        if self.mode == "paper" and self.min_samples != PAPER_MIN_SAMPLES:
            raise ValueError(f"mode paper has min_samples {PAPER_MIN_SAMPLES}: use mode=manual with eps=0.5 for others")
        return self


def keep(dataset: Dataset, config: Config) -> Kept:
    return _keep(dataset, config, None)


def network(source: nn.Module | Path | str | NDArray[Any] | Tensor, dataset: Dataset, **options: Any) -> Kept:
    """Filter a dataset by a network, the folder of a run, a file of features, or features in memory.

    Options are those of `Config`: `drop=0.1`, `mode="manual", eps=0.8`, `reducer="umap"` ... The result has a score
    (eps*: the smallest DBSCAN radius at which a sample is no noise), a mask, and in `arrays` a `map` to draw, clusters,
    and the network's own prediction, confidence and loss of each sample where its outputs are the dataset's classes.
    """
    from bigbatch.filters._source import of_array, of_module

    if isinstance(source, str | Path):
        return _keep(dataset, Config(network=str(source), **options), None)
    ready = of_module(source) if isinstance(source, nn.Module) else of_array(source)
    return _keep(dataset, Config(network=ready.about["network"], **options), ready)


def _keep(dataset: Dataset, config: Config, source: Source | None) -> Kept:
    features, about = features_of(config, dataset, source)

    def decide() -> Kept:
        rows = rows_of(config, dataset)
        labels = dataset.train.labels
        refuse_small_classes(labels[rows], dataset.classes, config.min_samples)
        placed = place(features, rows, config)
        points = _over_all(placed.points, rows, len(labels))
        eps_star = _cached_eps_star(placed, points, labels.numpy(), config.min_samples)
        decision = decided(points, eps_star, labels.numpy(), dataset.classes, config)
        info = {"network": about, **placed.info, **decision.info}
        return Kept(torch.from_numpy(eps_star), decision.mask, info, decision.arrays | features.answers)

    return _ranks.by_the_first(decide)


def refuse_small_classes(labels: Tensor, classes: Sequence[str], min_samples: int) -> None:
    counts = torch.bincount(labels, minlength=len(classes)).tolist()
    for name, count in zip(classes, counts, strict=True):
        if 0 < count < min_samples:
            raise Problem(
                f"class {name} has {count} samples, fewer than min_samples {min_samples}, so all would be noise: "
                f"use min_samples={count} or less"
            )


def _over_all(points: NDArray[np.float32], rows: NDArray[np.int64], samples: int) -> NDArray[np.float32]:
    """A row for each training sample; NaN where an earlier filter had dropped it."""
    filled = np.full((samples, points.shape[1]), np.nan, np.float32)
    filled[rows] = points
    return filled


def _cached_eps_star(
    placed: Placed, points: NDArray[np.float32], labels: NDArray[np.int64], min_samples: int
) -> NDArray[np.float64]:
    hashes = {"rows": hash_array(placed.rows), "labels": hash_array(labels)}
    made_from = {"map": placed.key, **hashes, "min_samples": min_samples}
    made = _cache.arrays("eps", made_from, lambda: {"eps_star": _decide.eps_star(points, labels, min_samples)})
    return made["eps_star"]


@dataclass(frozen=True)
class Decision:
    """What is kept at which radius; `arrays` has the places it was decided on."""

    mask: Tensor
    info: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def decided(
    points: NDArray[np.float32],
    eps_star: NDArray[np.float64],
    labels: NDArray[np.int64],
    classes: Sequence[str],
    config: Config,
) -> Decision:
    """From places and eps* to a mask. A result that is decided again with other settings comes through here too."""
    looked_at = np.isfinite(eps_star)
    given = _by_number(config.eps, labels[looked_at], classes)
    eps = _decide.decide_eps(eps_star, labels, config.mode, config.drop, config.per_class, given)
    mask = torch.from_numpy(_decide.mask_at(eps_star, labels, eps))
    refuse_empty_classes(
        mask[looked_at], torch.from_numpy(labels[looked_at]), classes, f"filter '{config.name}'", _advice(config)
    )
    knees = _decide.knees(points, labels, config.min_samples)
    info = {
        "min_samples": config.min_samples,
        "mode": config.mode,
        "eps": {classes[index]: radius for index, radius in eps.items()},
        "k_distance_knee": {classes[index]: round(knee, 4) for index, knee in knees.items()},
        "notes": _notes(eps_star, labels, eps, config),
    }
    clusters = _decide.cluster_labels(points, labels, eps, config.min_samples)
    arrays: dict[str, NDArray[Any]] = {"map": _first_two(points), "cluster": clusters}
    if points.shape[1] != 2:
        arrays["points"] = points  # what eps* was computed on is not the map then
    return Decision(mask, info, arrays)


def _first_two(points: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.pad(points[:, :2], ((0, 0), (0, max(0, 2 - points.shape[1]))))


def _by_number(
    eps: float | dict[str, float] | None, labels: NDArray[np.int64], classes: Sequence[str]
) -> float | dict[int, float] | None:
    """A radius for each class by its number, from one for each by its name."""
    if not isinstance(eps, dict):
        return eps
    needed = {classes[index] for index in np.unique(labels)}
    wrong = sorted((needed - set(eps)) | (set(eps) - set(classes)))
    if wrong:
        raise Problem(
            f"eps has to name each class once, but not so {', '.join(wrong)}: the classes are {', '.join(classes)}"
        )
    return {classes.index(name): radius for name, radius in eps.items()}


def _advice(config: Config) -> str:
    if config.mode == "fraction":
        return "use per_class=true or a smaller drop"
    if config.mode == "paper":
        return f"use mode=fraction, or mode=manual with a larger eps ({FIXED_EPS})"
    return f"use a larger eps ({FIXED_EPS})"


def _notes(
    eps_star: NDArray[np.float64], labels: NDArray[np.int64], eps: dict[int, float], config: Config
) -> list[str]:
    notes = ["the k-distance knee is a hint only: it moves a lot with little"]
    if config.mode != "fraction":
        return [FIXED_EPS, *notes]
    found = _decide.tied(eps_star, labels, eps, config.drop, config.per_class)
    if found.dropped < found.asked:
        notes.append(
            f"{found.asked - found.dropped:,} fewer samples than the {found.asked:,} asked for are dropped: samples "
            "that share an eps* are dropped together or not at all"
        )
    return notes
