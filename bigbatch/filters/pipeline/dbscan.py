"""DBSCAN's noise (Ester et al. 1996) for every eps at once.

For a fixed min_samples m a point p is noise exactly when eps < eps*(p), where

    eps*(p) = min over p's m nearest neighbours q, p among them, of max(d(p, q), core_m(q))

and core_m(q) is the distance from q to its m-th nearest neighbour, q being its own first. Farther q cannot be better:
p itself gives core_m(p), which is at most their distance. A fraction to drop is then a quantile of eps*.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from bigbatch.libraries import import_library

_TREE_DIMENSIONS = 15  # above, a tree looks at every point anyway; scikit-learn draws the line here too
_BLOCK_BYTES = 64 << 20
_PROBED_POINTS = 100

Floats = NDArray[np.float64]


def eps_star(points: NDArray[np.floating], min_samples: int) -> Floats:
    """Return the smallest eps at which each point is not noise; infinite if there are fewer points than min_samples."""
    return radii(points, min_samples)[0]


def radii(points: NDArray[np.floating], min_samples: int) -> tuple[Floats, Floats]:
    """Return eps* and the k-distance, which is that to the min_samples-th neighbour, of each point."""
    if len(points) < min_samples:
        return np.full(len(points), np.inf), np.full(len(points), np.inf)
    neighbours, squared = _nearest_neighbours(points, min_samples)
    core = squared[:, -1]
    best = core.copy()
    for near, distance in zip(neighbours.T, squared.T, strict=True):
        np.minimum(best, np.maximum(distance, core[near]), out=best)
    # the smallest float whose square is not smaller: scikit-learn compares squares, and roots are rounded
    root = np.sqrt(best)
    return np.where(np.square(root) < best, np.nextafter(root, np.inf), root), np.sqrt(core)


def estimate_pairs(points: NDArray[np.floating], eps: float) -> float:
    """Return about how many pairs of neighbours there are, which DBSCAN holds in memory, from a hundred points."""
    places = points.astype(np.float64)
    probed = places[:: max(1, len(places) // _PROBED_POINTS)]
    near = sum(int((np.square(places - point).sum(axis=1) <= eps**2).sum()) for point in probed)
    return near / max(1, len(probed)) * len(places)


def cluster_labels(
    points: NDArray[np.floating], eps: float, min_samples: int, noise: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Return the cluster of each point, -1 for noise: scikit-learn's DBSCAN, except that eps* decides what is noise.

    `noise` is given where ties of eps* are broken. A quantile of eps* is some point's eps* to the last bit, where
    scikit-learn may round either way. A point that is noise for scikit-learn only joins the cluster of the nearest
    point that has one.
    """
    from sklearn.cluster import DBSCAN

    places = np.ascontiguousarray(points, np.float64)
    if places.shape[1] > _TREE_DIMENSIONS:
        places = places - places.mean(axis=0)  # scikit-learn expands squares there, which loses digits far from zero
    algorithm = "kd_tree" if places.shape[1] <= _TREE_DIMENSIONS else "brute"
    positive_eps = max(eps, np.nextafter(0, 1))  # duplicates alone give an eps of zero, which scikit-learn refuses
    clustering = DBSCAN(eps=positive_eps, min_samples=min_samples, algorithm=algorithm)
    found: NDArray[np.int64] = clustering.fit_predict(places)
    noise = eps < eps_star(points, min_samples) if noise is None else noise
    found[noise] = -1
    for point in np.flatnonzero(~noise & (found == -1)):
        distances = np.square(places - places[point]).sum(axis=1)
        placed = np.flatnonzero(found >= 0)
        found[point] = found[placed[distances[placed].argmin()]] if len(placed) else 0
    return found


def find_knee(k_distances: Floats) -> float:
    """Return the knee of the sorted k-distances, the point farthest from their chord: a hint only."""
    distances = np.sort(k_distances)
    rise = distances[-1] - distances[0]
    if rise == 0:
        return float(distances[0])
    below_chord = np.linspace(0, 1, len(distances)) - (distances - distances[0]) / rise
    return float(distances[np.argmax(below_chord)])


def _nearest_neighbours(points: NDArray[np.floating], count: int) -> tuple[NDArray[np.int64], Floats]:
    """Return each point's nearest neighbours, itself included unless duplicates come first, and squared distances."""
    points = np.ascontiguousarray(points, np.float64)
    if points.shape[1] <= _TREE_DIMENSIONS:
        # an unbalanced tree is built twice as fast, and handles many duplicates
        tree = import_library("scipy.spatial", "clustering").cKDTree(points, balanced_tree=False, compact_nodes=False)
        neighbours = tree.query(points, k=np.arange(1, count + 1))[1]
    else:
        # by exact differences: |x|² + |y|² - 2xy is faster, but loses the digits that distinguish duplicates and
        # points far from the origin
        everything = torch.from_numpy(points)
        found = []
        for block in everything.split(max(1, _BLOCK_BYTES // (8 * len(points)))):
            distances = torch.cdist(block, everything, compute_mode="donot_use_mm_for_euclid_dist")
            found.append(distances.topk(count, largest=False).indices)
        neighbours = torch.cat(found).numpy()
    squared = np.zeros(neighbours.shape)
    for column in range(points.shape[1]):  # coordinate by coordinate: no [points, count, dimensions] array
        values = points[:, column]
        squared += np.square(values[neighbours] - values[:, None])
    order = np.argsort(squared, axis=1, kind="stable")  # the tree's own rounding may have swapped near ties
    return np.take_along_axis(neighbours, order, 1), np.take_along_axis(squared, order, 1)
