"""eps*: DBSCAN's noise for every eps, against scikit-learn and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import DBSCAN

from bigbatch.filters import decide_eps
from bigbatch.filters.pipeline import dbscan

EPS = [1e-3, 0.05, 0.1, 0.3, 0.5, 0.9, 1.0, np.sqrt(2), 2.0, np.sqrt(5), 3.3, np.sqrt(13), 5.0, 40.0, 1e6]
MIN_SAMPLES = [1, 2, 3, 5, 10, 30]


def point_sets():
    random = np.random.default_rng(4)
    for count in (1, 2, 5, 11, 40, 300):
        cloud = random.normal(size=(count, 2))
        yield "cloud", cloud
        yield "far from zero", cloud + 1e6
        yield (
            "lattice: distances tie, and eps meets them exactly",
            random.integers(0, 12, size=(count, 2)).astype(float),
        )
        yield "every point many times over", random.normal(size=(5, 2))[random.integers(0, 5, size=count)]
        yield "one point many times over", np.full((count, 2), 0.1)
        yield "collinear", np.outer(random.integers(0, 3 * count, size=count), [1.0, 2.0])
        yield "collinear, never exactly", np.outer(random.normal(size=count), [0.3, 0.1])
        yield "clusters of unlike density", cloud * random.choice([0.01, 0.3, 4.0], size=(count, 1))
        yield "one dimension", cloud[:, :1]
        yield "seven dimensions", random.normal(size=(count, 7))
    for count in (11, 80):  # searched without a tree
        wide = random.normal(size=(count, 50)) / 5
        yield "fifty dimensions", wide
        yield "fifty dimensions, far from zero", wide + 1e6
        yield "fifty dimensions, most points twice, far from zero", wide[random.integers(0, count // 2, count)] + 1e5
        yield "fifty dimensions, of unlike density", wide * random.choice([1e-6, 0.3, 40.0], size=(count, 1))


POINT_SETS = list(point_sets())


def scikit_learns_noise(points, eps, min_samples):
    # left to itself it would expand the squares of differences for a dozen points or many dimensions, and lose digits
    return DBSCAN(eps=eps, min_samples=min_samples, algorithm="kd_tree").fit_predict(points) == -1


@pytest.mark.parametrize("min_samples", MIN_SAMPLES)
def test_noise_is_scikit_learns_for_every_eps_and_point_set(min_samples):
    compared = 0
    for name, points in POINT_SETS:
        found = dbscan.eps_star(points, min_samples)
        for eps in EPS:
            noise = scikit_learns_noise(points, eps, min_samples)
            np.testing.assert_array_equal(eps < found, noise, err_msg=f"{name}, {len(points)} points, {eps=}")
            compared += len(points)
    assert compared > 50_000


@pytest.mark.parametrize("min_samples", [2, 5, 10])
def test_eps_star_itself_is_the_edge(min_samples):
    """Just above eps* a point is no noise, just below it is. (In the very last bit scikit-learn's tree does not agree
    with itself: it compares squares in its leaves and roots above them.)"""
    for name, points in POINT_SETS:
        found = dbscan.eps_star(points, min_samples)
        for edge in np.unique(found[np.isfinite(found) & (found > 0)])[::9]:
            for eps in (edge * (1 + 1e-12), edge * (1 - 1e-12)):
                noise = scikit_learns_noise(points, eps, min_samples)
                np.testing.assert_array_equal(eps < found, noise, err_msg=f"{name}, {len(points)} points, {eps=}")


def test_by_hand():
    # 0 and 1 are each other's second neighbour at distance 1; 3 reaches the core point 1 at 2; 9 reaches 3 at 6.
    points = np.array([[0.0], [1.0], [3.0], [9.0]])
    assert dbscan.eps_star(points, 2).tolist() == [1, 1, 2, 6]
    # With 3 samples 1 is core at 2, by 0 and 3. 0 is core only at 3 but borders on 1 at max(1, 2): eps* is below its
    # core distance, which is what forgetting border points gets wrong. 9 is core at 8 and borders on 3 at max(6, 3).
    assert dbscan.eps_star(points, 3).tolist() == [2, 2, 2, 6]


def test_fewer_points_than_min_samples_are_noise_at_every_eps():
    assert dbscan.eps_star(np.zeros((4, 2)), 5).tolist() == [np.inf] * 4
    assert dbscan.eps_star(np.zeros((0, 2)), 5).tolist() == []


def test_order_and_place_of_points_do_not_matter():
    points = np.random.default_rng(1).normal(size=(300, 2))
    order = np.random.default_rng(2).permutation(300)
    np.testing.assert_array_equal(dbscan.eps_star(points[order], 5), dbscan.eps_star(points, 5)[order])
    # a power of two scales without rounding
    np.testing.assert_array_equal(dbscan.eps_star(points * 4, 5), dbscan.eps_star(points, 5) * 4)


def test_a_fraction_is_a_quantile():
    one_class, scores = np.zeros(5, int), np.array([3.0, 1, 2, 5, 4])
    assert decide_eps(scores, one_class, "fraction", drop=0.4) == {0: 3}
    assert decide_eps(scores, one_class, "fraction", drop=0) == {0: 5}


def test_pairs_are_estimated():
    points = np.random.default_rng(0).uniform(size=(3000, 2))
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    assert dbscan.estimate_pairs(points, 0.2) == pytest.approx((distances <= 0.2).sum(), rel=0.15)
    assert dbscan.estimate_pairs(points, 9) == 3000**2


def test_labels_of_duplicates_at_an_eps_of_zero():
    points = np.repeat([[0.0, 0.0], [3.0, 0.0]], [6, 2], axis=0)
    assert dbscan.cluster_labels(points, 0.0, 5).tolist() == [0] * 6 + [-1] * 2


def test_at_every_edge_the_noise_of_clusters_is_that_of_eps_star():
    """At eps* itself, where a fraction always lands and scikit-learn's rounding may go either way."""
    for name, points in POINT_SETS:
        found = dbscan.eps_star(points, 4)
        for eps in np.unique(found[np.isfinite(found)])[::11]:
            clusters = dbscan.cluster_labels(points, eps, 4)
            np.testing.assert_array_equal(clusters == -1, eps < found, err_msg=f"{name}, {len(points)} points, {eps=}")


def test_clusters_are_scikit_learns():
    for name, points in POINT_SETS:
        found = dbscan.eps_star(points, 4)
        for eps in np.unique(found[np.isfinite(found) & (found > 1e-9)])[::29] * (1 + 1e-12):
            theirs = DBSCAN(eps=eps, min_samples=4, algorithm="kd_tree").fit_predict(points)
            clusters = dbscan.cluster_labels(points, eps, 4)
            np.testing.assert_array_equal(clusters, theirs, err_msg=f"{name}, {len(points)} points, {eps=}")


def test_the_knee_lies_between_the_dense_and_the_sparse():
    random = np.random.default_rng(0)
    points = np.concatenate([random.normal(size=(900, 2)), random.uniform(-60, 60, size=(100, 2))])
    assert 0.5 < dbscan.find_knee(dbscan.radii(points, 5)[1]) < 8
    assert dbscan.find_knee(dbscan.radii(np.zeros((10, 2)), 5)[1]) == 0
