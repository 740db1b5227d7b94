"""Which samples are kept and what they weigh, by hand."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from bigbatch import parts, selectors
from bigbatch.errors import Problem
from bigbatch.position import Position
from bigbatch.selectors import kept_loss, small_loss

LOSSES = torch.tensor([0.5, 0.1, 0.9, 0.3, 0.7])


def at(epochs: float) -> Position:
    return Position(epochs=epochs, total_epochs=200, global_batch=5)


def test_the_divisor_is_the_kept_samples_or_all():
    # 2 of 5 go: the mean over three samples, or their sum over five
    assert small_loss(LOSSES, 0.4).tolist() == pytest.approx([5 / 3, 0, 5 / 3, 0, 5 / 3])
    assert small_loss(LOSSES, 0.4, divisor="all").tolist() == [1, 0, 1, 0, 1]
    assert kept_loss(LOSSES, small_loss(LOSSES, 0.4)).item() == pytest.approx((0.5 + 0.9 + 0.7) / 3)
    assert kept_loss(LOSSES, small_loss(LOSSES, 0.4, divisor="all")).item() == pytest.approx((0.5 + 0.9 + 0.7) / 5)


@pytest.mark.parametrize(("discard", "count"), [(0.0, 0), (0.29, 29), (0.3, 30), (0.57, 57), (0.995, 99)])
def test_exactly_the_floor_is_discarded(discard, count):
    # 0.29 · 100 and 0.57 · 100 are a hair below 29 and 57 in binary
    weights = small_loss(torch.arange(100.0), discard)
    assert (weights == 0).sum() == count
    assert weights[:count].count_nonzero() == 0


def test_among_equal_losses_the_first_go():
    assert small_loss(torch.ones(1000), 0.3).nonzero().squeeze(1).tolist() == list(range(300, 1000))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_never_small(bad):
    losses = torch.tensor([bad, 1.0, 2.0, 3.0])
    weights = small_loss(losses, 0.5)
    assert weights[0] > 0
    assert not kept_loss(losses, weights).isfinite()


def test_a_discarded_loss_cannot_reach_the_gradient():
    scores = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    weights = small_loss(scores, 0.5)
    kept_loss(scores * scores, weights).backward()
    assert scores.grad.tolist() == [0, 0, 3, 4]  # 2·w·x/n with w = 2, n = 4
    assert not weights.requires_grad


def test_an_empty_share_of_a_batch_is_possible():
    assert small_loss(torch.zeros(0), 0.3).tolist() == []


def test_the_paper_discards_for_the_first_hundred_epochs():
    config = parts.configure("selectors", "small_loss")
    losses = torch.arange(10.0)
    counts = [int((selectors.weights(losses, config, at(epochs)) == 0).sum()) for epochs in (0, 99.9, 100, 199)]
    assert counts == [3, 3, 0, 0]


def test_the_choices_are_recorded():
    config = parts.configure("selectors", {"name": "small_loss", "discard": 0.25, "divisor": "all", "scope": "rank"})
    assert config.model_dump() == {
        "name": "small_loss",
        "discard": 0.25,
        "divisor": "all",
        "scope": "rank",
        "passes": "one",
    }


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_losses_that_are_not_one_a_sample_are_refused(shape):
    with pytest.raises(Problem, match="losses has shape"):
        small_loss(torch.zeros(shape), 0.3)


@pytest.mark.parametrize("discard", [1.0, 30.0, -0.1, float("nan")])
def test_a_bad_share_is_named(discard):
    with pytest.raises(Problem, match=f"discard is {discard}"):
        small_loss(LOSSES, discard)
    with pytest.raises((ValidationError, Problem), match="discard"):
        parts.configure("selectors", {"name": "small_loss", "discard": discard})


def test_a_bad_share_of_one_stage_is_named():
    with pytest.raises((ValidationError, Problem), match=r"discard\.stages\.0\.discard"):
        parts.configure("selectors", {"name": "small_loss", "discard": [{"from_epoch": 0, "discard": 1.5}]})


@pytest.mark.parametrize("starts", [[], [5], [0, 10, 10]])
def test_stages_that_do_not_cover_the_run_are_refused(starts):
    stages = [{"from_epoch": start, "discard": 0.3} for start in starts]
    with pytest.raises((ValidationError, Problem), match="should begin with from_epoch 0 and increase"):
        parts.configure("selectors", {"name": "small_loss", "discard": stages})
