"""Drop images that are none: nearly constant, too noisy or too dark, and dense clusters far from their class.

Two measures, each in robust standard deviations (1.4826 times the median absolute deviation) from its median; a
sample's score is the larger one.

Pixels: brightness, contrast, and sharpness, which is the mean step between adjacent pixels over the contrast. Either
end is suspicious: a constant image has no contrast, random pixels are sharper than any photograph.

Features: the distance from the class to the mean of a sample and its nearest neighbours, in units of the covariance
within classes (Mahalanobis; Lee et al. 2018). The mean of a lone outlier's neighbours lies near its class, that of a
dense cluster far from it: this finds what DBSCAN keeps.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from bigbatch.datasets import Dataset, sha256
from bigbatch.filters.pipeline import cache, ranks
from bigbatch.filters.pipeline.features import compute_features
from bigbatch.filters.pipeline.neighbours import NeighbourOptions, neighbours_of_features
from bigbatch.filters.pipeline.pca import Points
from bigbatch.filters.pipeline.results import Kept
from bigbatch.filters.pipeline.scoring import drop_largest
from bigbatch.output.progress import stage

_IMAGES_AT_ONCE = 1024
_TRUSTED = 0.75  # the fraction of a class, nearest to its centre, that the covariance is computed from
_PER_DEVIATION = 1.4826  # the standard deviation of a normal distribution in median absolute deviations

Floats = NDArray[np.float64]


class Config(NeighbourOptions):
    """A dense cluster has at least k samples."""


def keep(dataset: Dataset, config: Config) -> Kept:
    features, about = compute_features(config, dataset)
    labels = dataset.train.labels.numpy()

    def measure() -> dict[str, Floats]:
        points, neighbours, _ = neighbours_of_features(features, config)
        return _pixel_statistics(dataset) | {"far": _distances_to_class(points, neighbours, labels)}

    measured = ranks.compute_on_rank_zero(measure)
    odd = {name: _robust_deviations(values) for name, values in measured.items()}
    pixels = np.max([np.abs(odd[name]) for name in ("brightness", "contrast", "sharpness")], axis=0)
    score = torch.from_numpy(np.maximum(pixels, odd["far"]))
    return Kept(score, drop_largest(score, dataset, config), {"network": about, "k": config.k}, measured)


def _pixel_statistics(dataset: Dataset) -> dict[str, Floats]:
    """Return brightness, and the logarithms of contrast and sharpness, of the images as a network sees them. Cached."""
    samples = torch.arange(len(dataset.train))

    def compute() -> cache.Arrays:
        rows = []
        with stage("pixels", len(samples)) as advance:
            for block in samples.split(_IMAGES_AT_ONCE):
                images = dataset.train.fetch(block)[0].double()
                steps = sum(images.diff(dim=side).abs().flatten(1).mean(1) for side in (-1, -2))
                contrast = images.flatten(2).std(dim=2, correction=0).mean(1)
                rows.append(torch.stack([images.flatten(1).mean(1), contrast, torch.as_tensor(steps)], dim=1))
                advance(int(block[-1]) + 1)
        return {"statistics": torch.cat(rows).numpy()}

    key_fields = {"dataset": dataset.hash, "inputs": sha256(dataset.train.fetch(samples[:8])[0]), "version": 1}
    brightness, contrast, steps = cache.load_or_compute("pixels", key_fields, compute)["statistics"].T
    least = 1e-3 * np.median(contrast) + np.finfo(np.float64).tiny  # below, an image is constant
    contrast = np.maximum(contrast, least)
    return {
        "brightness": brightness,
        "contrast": np.log(contrast),
        "sharpness": np.log(np.maximum(steps, least) / contrast),
    }


def _distances_to_class(points: Points, neighbours: NDArray[np.int64], labels: NDArray[np.int64]) -> Floats:
    """Return the Mahalanobis distance of each sample's neighbourhood to its class, by the trusted part of classes."""
    values = points.astype(np.float64)
    around = (values + values[neighbours].sum(axis=1)) / (1 + neighbours.shape[1])
    trusted = np.ones(len(labels), bool)
    for _ in range(2):  # the second time without what is farthest by the first
        centres = np.zeros((labels.max() + 1, values.shape[1]))
        for index in np.unique(labels):
            centres[index] = np.median(values[(labels == index) & trusted], axis=0)
        within = (values - centres[labels])[trusted]
        precision = np.linalg.pinv(within.T @ within / len(within), hermitian=True)
        offset = around - centres[labels]
        distance: Floats = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", offset, precision, offset, optimize=True), 0))
        for index in np.unique(labels):
            members = labels == index
            trusted[members] = distance[members] <= np.quantile(distance[members], _TRUSTED)
    return distance


def _robust_deviations(values: Floats) -> Floats:
    from_median = values - np.median(values)
    deviation = _PER_DEVIATION * np.median(np.abs(from_median))
    return from_median / deviation if deviation > 0 else np.zeros(len(values))
