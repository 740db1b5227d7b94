"""Drop what DBSCAN calls noise, class by class, on a map of a trained network's features (Gahlot et al. 2020)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor, nn

from bigbatch.datasets import Dataset
from bigbatch.errors import Problem
from bigbatch.filters import _cache, _cluster, _ranks
from bigbatch.filters._kept import Kept
from bigbatch.filters._progress import station
from bigbatch.filters._size import refuse_empty_classes
from bigbatch.filters._stations import MapOptions, Placed, features_of, place, rows_of

if TYPE_CHECKING:
    from bigbatch.filters._source import Source

PAPER_EPS, PAPER_MIN_SAMPLES = 0.5, 5
FIXED_EPS = (
    "a fixed eps means nothing across dataset sizes and networks: on CIFAR-10's 50,000 an eps of 0.5 drops "
    "from 5 % to 88 % depending on the features"
)


class Config(MapOptions):
    """`fraction` drops a share, `paper` uses eps 0.5 and min_samples 5, `manual` the eps that is given."""

    mode: Literal["fraction", "paper", "manual"] = "fraction"
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
    (eps*: the smallest DBSCAN radius at which a sample is no noise), a mask, and `arrays["map"]` to draw.
    """
    from bigbatch.filters._source import of_array, of_module

    if isinstance(source, str | Path):
        return _keep(dataset, Config(network=str(source), **options), None)
    ready = of_module(source) if isinstance(source, nn.Module) else of_array(source)
    return _keep(dataset, Config(network=ready.about["network"], **options), ready)


def _keep(dataset: Dataset, config: Config, source: Source | None) -> Kept:
    features, key, about = features_of(config, dataset, source)

    def decide() -> Kept:
        rows = rows_of(config, dataset)
        _refuse_small_classes(dataset, rows, config.min_samples)
        return _decided(dataset, place(features, key, rows, config), config, about)

    return _ranks.by_the_first(decide)


def _refuse_small_classes(dataset: Dataset, rows: NDArray[np.int64], min_samples: int) -> None:
    counts = torch.bincount(dataset.train.labels[rows], minlength=len(dataset.classes)).tolist()
    for name, count in zip(dataset.classes, counts, strict=True):
        if 0 < count < min_samples:
            raise Problem(
                f"class {name} has {count} samples, fewer than min_samples {min_samples}, so all would be noise: "
                f"use min_samples={count} or less"
            )


def _decided(dataset: Dataset, placed: Placed, config: Config, about: dict[str, Any]) -> Kept:
    """eps* of every sample within its class, an eps for each class, and what is noise at it."""
    labels = dataset.train.labels.numpy()[placed.rows]
    classes = [index for index in range(len(dataset.classes)) if (labels == index).any()]
    eps_star = _eps_star(placed, labels, classes, config.min_samples)
    eps = _eps(eps_star, labels, classes, dataset, config)
    clusters = np.full(len(labels), -1, np.int64)
    with station("clusters", len(classes)) as advance:
        for count, index in enumerate(classes, start=1):
            members = labels == index
            clusters[members] = _cluster.labels(placed.points[members], eps[index], config.min_samples)
            advance(count)
    noise = np.array([eps[label] for label in labels]) < eps_star
    mask = torch.zeros(len(dataset.train), dtype=torch.bool)
    mask[torch.from_numpy(placed.rows[~noise])] = True
    _refuse_lost_classes(mask, dataset, config)

    def over_all(values: NDArray[Any], missing: float) -> NDArray[Any]:
        filled = np.full((len(mask), *values.shape[1:]), missing, values.dtype)
        filled[placed.rows] = values
        return filled

    hints = {dataset.classes[index]: round(_knee(placed, labels == index, config), 4) for index in classes}
    info = {
        "network": about,
        **placed.info,
        "min_samples": config.min_samples,
        "mode": config.mode,
        "eps": {dataset.classes[index]: eps[index] for index in classes},
        "k_distance_knee": hints,
        "notes": _notes(config),
    }
    arrays = {"map": over_all(placed.points[:, :2], np.nan), "cluster": over_all(clusters, -1)}
    # what an earlier filter dropped was not looked at: it is out at any eps
    return Kept(torch.from_numpy(over_all(eps_star, np.inf)), mask, info, arrays)


def _eps_star(placed: Placed, labels: NDArray[np.int64], classes: list[int], min_samples: int) -> NDArray[np.float64]:
    made_from = {"map": placed.key, "labels": _cache.hash_of_array(labels), "min_samples": min_samples}

    def make() -> _cache.Arrays:
        found = np.empty(len(labels))
        with station("eps*", len(classes)) as advance:
            for count, index in enumerate(classes, start=1):
                found[labels == index] = _cluster.eps_star(placed.points[labels == index], min_samples)
                advance(count)
        return {"eps_star": found}

    return _cache.arrays("eps", made_from, make)["eps_star"]


def _eps(
    eps_star: NDArray[np.float64], labels: NDArray[np.int64], classes: list[int], dataset: Dataset, config: Config
) -> dict[int, float]:
    """The radius of each class."""
    if config.mode == "paper":
        return dict.fromkeys(classes, PAPER_EPS)
    if config.mode == "manual":
        return _manual_eps(classes, dataset, config.eps)
    if not config.per_class:
        one = _cluster.eps_that_drops(eps_star, round(config.drop * len(eps_star)))
        return dict.fromkeys(classes, one)
    by_class = {index: eps_star[labels == index] for index in classes}
    return {
        index: _cluster.eps_that_drops(values, min(round(config.drop * len(values)), len(values) - 1))
        for index, values in by_class.items()
    }


def _manual_eps(classes: list[int], dataset: Dataset, given: float | dict[str, float] | None) -> dict[int, float]:
    if not isinstance(given, dict):
        assert given is not None
        return dict.fromkeys(classes, given)
    names = [dataset.classes[index] for index in classes]
    if set(given) != set(names):
        wrong = sorted(set(given) ^ set(names))
        raise Problem(f"eps has to name each class once, but not so {', '.join(wrong)}: the classes are {names}")
    return {index: given[dataset.classes[index]] for index in classes}


def _refuse_lost_classes(mask: Tensor, dataset: Dataset, config: Config) -> None:
    advice = "use per_class=true or a smaller drop" if config.mode == "fraction" else f"use a larger eps ({FIXED_EPS})"
    refuse_empty_classes(mask, dataset, config.name, advice)


def _knee(placed: Placed, members: NDArray[np.bool_], config: Config) -> float:
    return _cluster.knee(placed.points[members], config.min_samples)


def _notes(config: Config) -> list[str]:
    notes = ["the k-distance knee is a hint only: it moves a lot with little"]
    return notes if config.mode == "fraction" else [FIXED_EPS, *notes]
