"""Filters that look for noise: by hand, and where each is the one to find it."""

from __future__ import annotations

import filter_parts
import numpy as np
import pytest
import torch

from bigbatch import filters, parts
from bigbatch.errors import Problem
from bigbatch.filters import combined
from bigbatch.filters.pipeline import cache, features, neighbours
from bigbatch.filters.pipeline.results import Kept


@pytest.fixture(autouse=True)
def _own_cache(tmp_path):
    with cache.use_folder(tmp_path / "cache"):
        yield


def kept(name, dataset, **options):
    return filters.keep(dataset, parts.configure("filters", {"name": name, **options}))


def with_features(tmp_path, values):
    path = tmp_path / "features.npy"
    np.save(path, values.astype(np.float32))
    return str(path)


def recall(found, chosen):
    return float((~found.mask[chosen]).float().mean())


def test_a_network_vouches_for_what_it_memorised_but_not_out_of_fold():
    dataset, wrong = filter_parts.flipped(0.05), filter_parts.flipped_samples(0.05)
    options = {"model": {"name": "mlp", "hidden": [512]}, "lr": 0.2, "drop": 0.1}
    learned = kept("loss", dataset, folds=1, epochs=50, **options)
    held_out = kept("loss", dataset, folds=2, epochs=8, **options)
    assert recall(held_out, wrong) > 0.95
    assert recall(learned, wrong) < recall(held_out, wrong)
    assert learned.score[wrong].median() < held_out.score[wrong].median() / 2
    assert held_out.info["network"]["folds"] == 2


def test_the_networks_of_a_fold_have_not_seen_it(monkeypatch):
    """Rows and predictions of each fold are those of the network that was trained on the others."""
    dataset = filter_parts.digits(300)
    trained = []
    train = features.Learner.train

    def remember(learner, data, number, rows):
        trained.append((rows, train(learner, data, number, rows)))
        return trained[-1][1]

    monkeypatch.setattr(features.Learner, "train", remember)
    found = kept("loss", dataset, model="mlp", folds=3, epochs=1)
    for rows, model in trained:
        unseen = torch.ones(300, dtype=torch.bool)
        unseen[rows] = False
        with torch.no_grad():
            logits = model(dataset.train.fetch(torch.arange(300))[0])
        losses = torch.nn.functional.cross_entropy(logits, dataset.train.labels, reduction="none")
        np.testing.assert_allclose(found.score[unseen], losses[unseen], rtol=1e-4)
    kept("neighbours", dataset, model="mlp", folds=3, epochs=1)
    assert len(trained) == 3  # the second filter finds the features in the cache


def test_the_network_filter_takes_features_out_of_fold():
    found = kept(
        "network", filter_parts.digits(300), network="out_of_fold", model="mlp", folds=2, epochs=1, reducer="none"
    )
    assert found.info["network"]["network"] == "out_of_fold"
    assert {"prediction", "confidence", "loss", "map"} <= set(found.arrays)


def test_features_are_aligned_by_a_turn_a_scale_and_a_shift():
    random = np.random.default_rng(0)
    reference = random.normal(size=(200, 5)).astype(np.float32)
    turn = np.linalg.qr(random.normal(size=(5, 5)))[0]
    other = (3 * reference @ turn + random.normal(size=5)).astype(np.float32)
    np.testing.assert_allclose(features.align_features(other, reference), reference, atol=1e-4)


def test_disagreement_by_hand(tmp_path):
    # on a line: 0 1 2 | 10 11 12 with one label of the left group wrong; the nearest two of each decide
    dataset, _ = filter_parts.two_blobs((4, 2), 0)
    values = np.array([0.0, 1, 10, 2.5, 11, 12.5])[:, None]  # samples 0 to 3 are of class 0: sample 2 lies in the other
    found = kept("neighbours", dataset, network=with_features(tmp_path, values), k=2, drop=0.2, per_class=False)
    assert found.arrays["disagreement"].tolist() == [0, 0, 1, 0, 0.5, 0.5]
    assert found.mask.tolist() == [True, True, False, True, True, True]
    # 4 and 5 have as many neighbours of another class: the one whose neighbours are farther goes first
    assert found.score[5] > found.score[4] > found.score[3]


def test_k_must_leave_somebody(tmp_path):
    dataset, values = filter_parts.two_blobs()
    with pytest.raises(Problem, match="k must be below 100, the number of samples, got 100"):
        kept("neighbours", dataset, network=with_features(tmp_path, values), k=100)


def test_a_dense_cluster_far_from_its_class_is_junk_but_no_noise_to_dbscan(tmp_path):
    dataset, values = filter_parts.two_blobs((300, 200), 0)
    random = np.random.default_rng(1)
    clump = np.arange(20)  # of class 0, in one place beyond both classes
    values[clump] = [50, -60] + 0.01 * random.normal(size=(20, 2))
    path = with_features(tmp_path, values)
    by_density = kept("network", dataset, network=path, reducer="none", drop=0.1)
    by_distance = kept("junk", dataset, network=path, drop=0.1)
    assert recall(by_density, clump) == 0
    assert recall(by_distance, clump) == 1


def test_constant_dark_and_noisy_images_are_junk():
    dataset = filter_parts.digits(500)
    images = dataset.train.images
    images[:5] = 7
    images[5:10] = (images[5:10].float() * 0.05).round().to(images.dtype)
    images[10:15] = torch.from_numpy(np.random.default_rng(0).integers(0, 17, (5, 1, 8, 8))).to(images.dtype)
    found = kept("junk", dataset, network="filter_parts:Net", drop=0.06)
    assert recall(found, torch.arange(10)) == 1
    assert recall(found, torch.arange(15)) >= 0.8


def test_fusion_of_ranks_by_hand(monkeypatch):
    dataset, _ = filter_parts.two_blobs((2, 2), 0)
    scores = {"loss": [4.0, 3, 2, 1], "junk": [1.0, 2, 3, 9]}
    monkeypatch.setattr(
        combined, "apply_filter", lambda _, config: Kept(torch.tensor(scores[config.name]), torch.ones(4))
    )
    found = kept("combined", dataset, of=["loss", "junk"], weights={"junk": 2}, drop=0.25, per_class=False)
    expected = [1 / 61 + 2 / 64, 1 / 62 + 2 / 63, 1 / 63 + 2 / 62, 1 / 64 + 2 / 61]
    np.testing.assert_allclose(found.score, expected)
    assert found.mask.tolist() == [True, True, True, False]
    assert set(found.arrays) == {"score_loss", "score_junk"}


def test_a_network_without_the_classes_has_no_loss(tmp_path):
    dataset, values = filter_parts.two_blobs()
    with pytest.raises(Problem, match="does not predict the dataset's classes, so it has no loss"):
        kept("loss", dataset, network=with_features(tmp_path, values))


def test_inverted_lists_find_nearly_all_neighbours_in_any_number_of_threads(monkeypatch):
    pytest.importorskip("faiss")
    random = np.random.default_rng(0)
    points = (random.normal(size=(6000, 8)) + 4 * random.integers(0, 5, size=(6000, 1))).astype(np.float32)
    exact, _ = neighbours.nearest_neighbours(points, 10, engine="torch")
    monkeypatch.setattr(neighbours, "MAX_EXACT_POINTS", 5000)
    found, distances = neighbours.nearest_neighbours(points, 10, jobs=1, engine="faiss")
    again, _ = neighbours.nearest_neighbours(points, 10, jobs=2, engine="faiss")
    np.testing.assert_array_equal(found, again)
    assert (np.diff(distances) >= 0).all()
    shared = np.mean([len(set(a) & set(b)) for a, b in zip(exact.tolist(), found.tolist(), strict=True)]) / 10
    assert 0.9 < shared < 1
