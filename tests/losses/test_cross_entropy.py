"""Cross-entropy with smoothed labels, by hand and for text."""

from __future__ import annotations

import math

import pytest
import torch

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.losses import per_sample_loss


def test_smoothing_spreads_epsilon_over_all_classes_the_right_one_included():
    # softmax of (ln 2, ln 1, ln 1) is (.5, .25, .25). With ε = .3 the target is (.8, .1, .1):
    # .8 ln 2 + .2 ln 4 = 1.2 ln 2. Spreading ε over the other classes only would give 1.3 ln 2.
    logits = torch.tensor([[2.0, 1.0, 1.0]], dtype=torch.float64).log()
    smoothed = parts.configure("losses", {"name": "cross_entropy", "label_smoothing": 0.3})
    assert per_sample_loss(logits, torch.tensor([0]), smoothed).item() == pytest.approx(1.2 * math.log(2), rel=1e-12)
    assert per_sample_loss(logits, torch.tensor([0])).item() == pytest.approx(math.log(2), rel=1e-12)


def test_a_sample_of_text_has_the_mean_loss_of_its_window():
    logits = torch.tensor([[[2.0, 1.0, 1.0], [1.0, 1.0, 2.0]]], dtype=torch.float64).log()
    assert per_sample_loss(logits, torch.tensor([[0, 0]])).tolist() == [pytest.approx(1.5 * math.log(2), rel=1e-12)]


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, float("nan")])
def test_smoothing_outside_of_0_to_1_is_refused(smoothing):
    with pytest.raises(Problem, match=r"loss 'cross_entropy': label_smoothing"):
        parts.configure("losses", {"name": "cross_entropy", "label_smoothing": smoothing})
