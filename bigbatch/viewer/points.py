"""The samples on the map, which do not change: eps* for any min_samples, clusters, neighbours."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigbatch import filters
from bigbatch.datasets.reading.hashing import hash_array
from bigbatch.filters import FilterResult
from bigbatch.filters.pipeline.dbscan import estimate_pairs
from bigbatch.filters.pipeline.decision import MAX_PAIRS, cached_eps_star
from bigbatch.libraries import import_library
from bigbatch.viewer.requests import RequestError, SampleNumbers

_MAX_MIN_SAMPLES = 50
_COLUMNS_IN_MEMORY = 4  # of eps*, for as many values of min_samples
_MAX_PAIRS = MAX_PAIRS


class MapPoints:
    """The points of one filter's result. `positions` are drawn; distances are those of `_points`, mostly the same."""

    def __init__(self, saved: FilterResult, classes: Sequence[str], min_samples: int) -> None:
        self.classes = classes
        self.labels: NDArray[np.int64] = saved.arrays["label"].astype(np.int64, copy=False)
        self.positions: NDArray[np.float32] = np.ascontiguousarray(saved.arrays["map"], np.float32)
        self._points: NDArray[np.floating[Any]] = saved.arrays.get("points", self.positions)
        # samples that an earlier filter dropped have no point
        self.considered: NDArray[np.bool_] = ~np.isnan(self._points[:, 0])
        counts = np.bincount(self.labels[self.considered])
        self.max_min_samples = int(min(_MAX_MIN_SAMPLES, counts.max()))  # smaller classes are kept whole
        self._eps_stars = OrderedDict({min_samples: saved.score.numpy().astype(np.float64, copy=False)})
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def hash(self) -> str:
        return hash_array(self._points)

    def eps_star(self, min_samples: int) -> NDArray[np.float64]:
        """Return eps* of each sample, infinite where it was not considered. A few columns are kept in memory."""
        self._check_min_samples(min_samples)
        with self._lock:
            if min_samples not in self._eps_stars:
                self._eps_stars[min_samples] = cached_eps_star(self._points, self.labels, min_samples)
            self._eps_stars.move_to_end(min_samples)
            while len(self._eps_stars) > _COLUMNS_IN_MEMORY:
                self._eps_stars.popitem(last=False)
            return self._eps_stars[min_samples]

    def cluster_labels(self, min_samples: int, eps: Sequence[float | None]) -> NDArray[np.int32]:
        """Return the cluster of each sample, numbered within its class, -1 for noise."""
        self._check_min_samples(min_samples)
        if len(eps) != len(self.classes):
            raise RequestError(f"got {len(eps)} eps for {len(self.classes)} classes: give one for each")
        eps_by_class = {index: radius for index, radius in enumerate(eps) if radius is not None}
        self.check_pair_count(eps_by_class)
        return filters.cluster_labels(self._points, self.labels, eps_by_class, min_samples).astype(np.int32)

    def check_pair_count(self, eps_by_class: Mapping[int, float]) -> None:
        """Refuse an eps at which the pairs of neighbours of a class would not fit into memory."""
        for index, radius in eps_by_class.items():
            members = self._points[(self.labels == index) & self.considered]
            if len(members) ** 2 <= _MAX_PAIRS:
                continue
            pairs = estimate_pairs(members, radius)
            if pairs > _MAX_PAIRS:
                raise RequestError(
                    f"at eps {radius:g} class {self.classes[index]} has {pairs / 1e6:,.0f} million pairs of "
                    "neighbours, too many to cluster in memory: choose a smaller eps for it"
                )

    def nearest_neighbours(self, sample: int, count: int) -> list[dict[str, float]]:
        """Return the nearest other samples on the map, of any class, with their distances."""
        self.check_sample(sample)
        if not self.considered[sample]:
            return []
        tree, samples = self._tree
        distances, rows = tree.query(self.positions[sample], k=np.arange(1, min(count + 1, len(samples)) + 1))
        found = zip(samples[rows].tolist(), distances.tolist(), strict=True)
        return [{"sample": other, "distance": distance} for other, distance in found if other != sample][:count]

    def check_sample(self, sample: int) -> None:
        if not 0 <= sample < len(self):
            raise RequestError(f"there is no sample {sample}: they are numbered 0 to {len(self) - 1}", 404)

    def _check_min_samples(self, min_samples: int) -> None:
        if not 1 <= min_samples <= self.max_min_samples:
            raise RequestError(f"min_samples must be 1 to {self.max_min_samples}, got {min_samples}: choose another")

    @cached_property
    def _tree(self) -> tuple[Any, SampleNumbers]:
        samples = np.flatnonzero(self.considered)
        tree_class = import_library("scipy.spatial", "the search for neighbours").cKDTree
        return tree_class(self.positions[samples], balanced_tree=False, compact_nodes=False), samples
