"""The samples on the map, which nobody changes: eps* for any min_samples, clusters, neighbours."""

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
from bigbatch.filters import Saved
from bigbatch.filters.pipeline.threshold import cached_eps_star
from bigbatch.libraries import import_library
from bigbatch.viewer.decide import Floats
from bigbatch.viewer.refused import Refused

_MOST_MIN_SAMPLES = 50
_COLUMNS_IN_MEMORY = 4  # of eps*, for as many values of min_samples
_MOST_PAIRS = 60_000_000  # of neighbours; DBSCAN holds all of a class in memory
_PROBED = 100  # points of a class that stand for all when pairs are counted


class Points:
    """Of one filter's result. `positions` are drawn; `_measured`, mostly the same, is what distances are taken in."""

    def __init__(self, saved: Saved, classes: Sequence[str], min_samples: int) -> None:
        self.classes = classes
        self.labels: NDArray[np.int64] = saved.arrays["label"].astype(np.int64, copy=False)
        self.positions: NDArray[np.float32] = np.ascontiguousarray(saved.arrays["map"], np.float32)
        self._measured: NDArray[Any] = saved.arrays.get("points", self.positions)
        self.considered: NDArray[np.bool_] = ~np.isnan(self._measured[:, 0])
        counts = np.bincount(self.labels[self.considered])
        self.most_min_samples = int(min(_MOST_MIN_SAMPLES, counts[counts > 0].min()))
        self._eps_stars: OrderedDict[int, Floats] = OrderedDict()
        self._eps_stars[min_samples] = saved.score.numpy().astype(np.float64, copy=False)
        self._computing = threading.Lock()

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def hash(self) -> str:
        return hash_array(self._measured)

    def eps_star(self, min_samples: int) -> Floats:
        """Infinite where a sample was not looked at. The last few are kept in memory, all on disk."""
        self._check_min_samples(min_samples)
        with self._computing:
            if min_samples not in self._eps_stars:
                self._eps_stars[min_samples] = cached_eps_star(self._measured, self.labels, min_samples)
            self._eps_stars.move_to_end(min_samples)
            while len(self._eps_stars) > _COLUMNS_IN_MEMORY:
                self._eps_stars.popitem(last=False)
            return self._eps_stars[min_samples]

    def clusters(self, min_samples: int, eps: Sequence[float | None]) -> NDArray[np.int32]:
        """Numbered within each class, -1 for noise."""
        self._check_min_samples(min_samples)
        if len(eps) != len(self.classes):
            raise Refused(f"got {len(eps)} eps for {len(self.classes)} classes: give one for each")
        radii = {index: radius for index, radius in enumerate(eps) if radius is not None}
        self.refuse_too_many_pairs(radii)
        return filters.cluster_labels(self._measured, self.labels, radii, min_samples).astype(np.int32)

    def refuse_too_many_pairs(self, radii: Mapping[int, float]) -> None:
        """A wide eps in a large class would take all memory there is."""
        for index, radius in radii.items():
            members = self._measured[(self.labels == index) & self.considered].astype(np.float64)
            if len(members) ** 2 <= _MOST_PAIRS:
                continue
            probed = members[:: max(1, len(members) // _PROBED)]
            near = sum(int((np.square(members - point).sum(axis=1) <= radius**2).sum()) for point in probed)
            pairs = near / len(probed) * len(members)
            if pairs > _MOST_PAIRS:
                raise Refused(
                    f"at eps {radius:g} class {self.classes[index]} has {pairs / 1e6:,.0f} million pairs of "
                    "neighbours, too many to cluster in memory: choose a smaller eps for it"
                )

    def neighbours(self, sample: int, count: int) -> list[dict[str, Any]]:
        """The nearest other samples on the map, of any class."""
        self.check_sample(sample)
        if not self.considered[sample]:
            return []
        tree, samples = self._tree
        distances, near = tree.query(self.positions[sample], k=np.arange(1, min(count + 1, len(samples)) + 1))
        found = [(int(samples[row]), float(distance)) for row, distance in zip(near, distances, strict=True)]
        others = [(other, distance) for other, distance in found if other != sample][:count]
        return [{"sample": other, "distance": distance} for other, distance in others]

    def check_sample(self, sample: int) -> None:
        if not 0 <= sample < len(self):
            raise Refused(f"there is no sample {sample}: they are numbered 0 to {len(self) - 1}", 404)

    def _check_min_samples(self, min_samples: int) -> None:
        if not 1 <= min_samples <= self.most_min_samples:
            raise Refused(f"min_samples {min_samples} is not in 1 to {self.most_min_samples}: choose one there")

    @cached_property
    def _tree(self) -> tuple[Any, NDArray[np.int64]]:
        samples = np.flatnonzero(self.considered)
        tree_class = import_library("scipy.spatial", "the search of neighbours").cKDTree
        return tree_class(self.positions[samples], balanced_tree=False, compact_nodes=False), samples
