"""Controls and rivals by hand: small numbers that expose the usual mistake."""

from __future__ import annotations

import filter_parts
import numpy as np
import pytest
import torch
from torch import nn

from bigbatch import parts, rng
from bigbatch.errors import Problem
from bigbatch.filters import ccs, grid, semdedup
from bigbatch.filters.pipeline.scoring import Learner, drop_largest, predict_probabilities

LEARNING = {"model": "mlp", "networks": 2, "global_batch": 32, "lr": 0.1}


def kept(name, dataset, **options):
    config = parts.configure("filters", {"name": name, **options})
    return parts.find("filters", name).keep(dataset, config)


def test_random_drops_the_fraction_of_each_class_and_moves_with_the_seed():
    dataset = filter_parts.digits()
    masks = [kept("random", dataset, drop=0.2, seed=seed).mask for seed in (0, 1)]
    labels = dataset.train.labels
    for mask in masks:
        assert [int((~mask[labels == k]).sum()) for k in range(10)] == [
            round(0.2 * int((labels == k).sum())) for k in range(10)
        ]
    # two independent fifths share a twenty-fifth
    assert abs(int((~masks[0] & ~masks[1]).sum()) - 1437 / 25) < 25


def test_equal_scores_are_dropped_in_a_random_order_not_in_that_of_the_file():
    dataset = filter_parts.digits()
    config = parts.configure("filters", {"name": "random", "drop": 0.5, "per_class": False})
    dropped = ~drop_largest(torch.zeros(1437), dataset, config)
    assert 300 < dropped[:718].sum() < 420


def test_full_keeps_everything():
    assert kept("full", filter_parts.digits()).mask.all()


@pytest.mark.parametrize(("name", "epochs"), [("el2n", 3), ("grand", 3), ("forgetting", 8)])
def test_wrong_labels_are_among_the_hardest(name, epochs):
    dataset, wrong = filter_parts.flipped(), filter_parts.flipped_samples()
    difficulty = kept(name, dataset, epochs=epochs, **LEARNING).arrays["difficulty"]
    hardest = np.argsort(-difficulty)[: len(wrong)]
    assert np.isin(hardest, wrong.numpy()).mean() > 0.5  # 5 % by chance


def test_el2n_can_drop_the_hard_ones():
    dataset = filter_parts.digits(300)
    easy, hard = (kept("el2n", dataset, epochs=1, drop_which=which, **LEARNING) for which in ("easy", "hard"))
    assert torch.equal(easy.score, -hard.score)
    assert not torch.equal(easy.mask, hard.mask)


def test_el2n_by_hand():
    # p = (1/2, 1/2) against y = (1, 0): √(1/4 + 1/4). Without the root of the sum it would be 1/2.
    dataset, _ = filter_parts.two_blobs()  # all images are black, so the network can only guess by its bias
    options = {"model": {"name": "mlp", "hidden": []}, "networks": 1, "epochs": 1, "global_batch": 100, "lr": 1e-9}
    found = kept("el2n", dataset, **options)
    model = parts.configure("filters", {"name": "el2n", **options}).learner().train(dataset)
    p = predict_probabilities(model, dataset)[0].numpy()
    assert found.arrays["difficulty"][0] == pytest.approx(np.hypot(1 - p[0], p[1]))
    assert found.arrays["difficulty"][99] == pytest.approx(np.hypot(p[0], 1 - p[1]))


def test_gradient_norms_equal_one_backward_pass_a_sample():
    from bigbatch.filters.grand import gradient_norms

    dataset, net = filter_parts.digits(70), filter_parts.Net()
    norms = gradient_norms(net, dataset)
    for sample in (0, 33, 69):
        net.zero_grad()
        x, y = dataset.train.fetch(torch.tensor([sample]))
        nn.functional.cross_entropy(net.eval()(x), y).backward()
        total = sum(float(parameter.grad.square().sum()) for parameter in net.parameters())
        assert norms[sample] == pytest.approx(total**0.5, rel=1e-5)


def test_forgetting_counts_falls_from_right_to_wrong_and_never_learned_as_most(monkeypatch):
    from bigbatch.filters import forgetting

    dataset = filter_parts.digits(3)
    dataset.train.labels[:] = torch.tensor([0, 0, 0])
    #            always right  right, wrong, right, wrong  never
    answers = [[0, 0, 5], [0, 5, 5], [0, 0, 5], [0, 5, 5]]

    def watched(learner, dataset, number, on_batch):
        for row in answers:
            order = torch.tensor([2, 0, 1])
            on_batch(order, nn.functional.one_hot(torch.tensor(row)[order], 10).float())

    monkeypatch.setattr(Learner, "train", watched)
    config = parts.configure("filters", {"name": "forgetting", "networks": 1, "epochs": 4, "drop": 0.34})
    found = forgetting.keep(dataset, config)
    assert found.arrays["difficulty"].tolist() == [0, 2, 4]
    assert found.mask.tolist() == [False, True, True]  # the never forgotten goes first


def test_networks_do_not_depend_on_what_was_drawn_before():
    dataset = filter_parts.digits(200)
    config = parts.configure("filters", {"name": "el2n", **LEARNING, "model": "filter_parts:Net", "epochs": 1})
    first = predict_probabilities(config.learner().train(dataset), dataset)
    torch.manual_seed(99)
    assert torch.equal(first, predict_probabilities(config.learner().train(dataset), dataset))


def test_each_sample_is_held_out_once(monkeypatch):
    monkeypatch.setattr(Learner, "train", lambda learner, dataset, number, rows: rows)
    learner, seen = parts.configure("filters", "confident").learner(), torch.zeros(103)
    for held_out, learned in learner.train_on_folds(filter_parts.digits(103), 4):
        assert sorted([*learned.tolist(), *held_out.tolist()]) == list(range(103))
        seen[held_out] += 1
    assert (seen == 1).all()
    ((everything, learned),) = learner.train_on_folds(filter_parts.digits(103), 1)
    assert sorted(everything.tolist()) == learned.tolist() == list(range(103))


def test_confident_learning_finds_wrong_labels_and_spares_right_ones():
    pytest.importorskip("cleanlab")
    dataset, wrong = filter_parts.flipped(), filter_parts.flipped_samples()
    found = kept("confident", dataset, model="mlp", networks=3, epochs=8, lr=0.1, global_batch=32)
    dropped = ~found.mask
    assert dropped[wrong].float().mean() > 0.7
    assert dropped[wrong].sum() / dropped.sum() > 0.5
    assert found.info["label_issues_found"] == dropped.sum()


def test_coverage_takes_little_from_the_crowd_and_none_of_the_hardest():
    # 90 easy, 8 middling, 2 hardest; 20 to keep. By rank the hard ones alone would stay; at random 18 easy ones.
    difficulty = np.concatenate([np.linspace(0, 0.09, 90), np.linspace(0.5, 0.59, 8), [0.98, 1.0]])
    config = parts.configure("filters", {"name": "ccs", "hardest": 0.02, "strata": 2})
    score, mask = ccs._sample_strata(difficulty, rng.uniform(3, np.arange(100)), 80, config)
    assert mask.sum() == 20
    assert mask[90:98].all()  # the small stratum gives its 8, the crowd the other 12
    assert not mask[98:].any()
    assert score[98:].min() > score[:98].max()
    assert score[mask].max() < score[~mask].min()


def test_coverage_of_equal_difficulties_is_random():
    config = parts.configure("filters", {"name": "ccs", "hardest": 0.0})
    _, mask = ccs._sample_strata(np.ones(50), rng.uniform(1, np.arange(50)), 25, config)
    assert mask.sum() == 25


def test_ccs_refuses_a_measure_that_is_none():
    with pytest.raises(Exception, match="'random', which does not measure difficulty: use el2n, forgetting or grand"):
        parts.configure("filters", {"name": "ccs", "by": "random"})


def test_the_grid_thins_every_cell_alike():
    cell = np.repeat([4, 9, 2], [100, 40, 3])
    score = grid._thinning_scores(cell, 0)
    for share in (0.25, 0.5, 0.9):
        for number, count in ((4, 100), (9, 40), (2, 3)):
            assert abs((score[cell == number] < share).sum() - share * count) <= 1
    assert grid._assign_cells(np.array([[0.0, 0], [1, 1], [0.49, 0.51]], np.float32), 2).tolist() == [0, 3, 2]


def test_near_duplicates_go_and_one_of_each_group_stays():
    random = np.random.default_rng(0)
    features = random.normal(size=(100, 16)).astype(np.float32)
    features[10:20] = features[0:10] * random.uniform(0.5, 2, size=(10, 1))  # cosine 1 whatever the length
    features[30] = features[31] = features[32]
    found = semdedup._compute_similarities(features, 1, 0)["similarity"]
    duplicates = found > 1 - 1e-5
    assert duplicates.sum() == 12
    assert duplicates[:20].sum() == 10
    assert all(duplicates[sample] != duplicates[sample + 10] for sample in range(10))
    assert duplicates[30:33].sum() == 2


def test_duplicates_above_a_threshold_go_however_many(tmp_path):
    dataset, _ = filter_parts.two_blobs((50, 50))
    features = np.random.default_rng(0).normal(size=(100, 16)).astype(np.float32)
    features[10:20] = features[0:10]
    np.save(tmp_path / "features.npy", features)
    found = kept("semdedup", dataset, network=str(tmp_path / "features.npy"), threshold=0.999, clusters=1)
    assert (~found.mask).sum() == 10


class Counted(np.ndarray):
    """Remembers how many rows were asked for at most."""

    def __getitem__(self, key):
        found = np.asarray(self).__getitem__(key)
        Counted.most = max(getattr(Counted, "most", 0), len(found))
        return found


def test_duplicates_are_looked_for_without_all_features_in_memory(monkeypatch):
    monkeypatch.setattr(semdedup, "_LEAST_BATCH", 50)
    random = np.random.default_rng(0)
    centres = np.repeat(np.eye(8), 25, axis=0) * 9
    features = (centres + random.normal(size=(200, 8))).astype(np.float32)
    features[100:110] = features[110:120]
    found = semdedup._compute_similarities(features.view(Counted), 8, 0)["similarity"]
    assert Counted.most < 100
    assert np.flatnonzero(found > 1 - 1e-5).size == 10
    assert all((found[sample] > 1 - 1e-5) != (found[sample + 10] > 1 - 1e-5) for sample in range(100, 110))
    with pytest.raises(Problem, match="clusters must be at most 200, the number of samples, got 300"):
        kept("semdedup", filter_parts.digits(200), network="filter_parts:Net", clusters=300)
