"""Small gradient entries, by hand and against a sort."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bigbatch import parts, selectors
from bigbatch.errors import Problem
from bigbatch.selectors import small_gradient


def test_the_smallest_in_size_go_tensor_by_tensor():
    gradients = [torch.tensor([[-3.0, 0.1], [0.2, -0.05]]), torch.tensor([100.0, 50.0])]
    small_gradient(gradients, 0.5)
    assert gradients[0].tolist() == [[-3.0, 0.0], [pytest.approx(0.2), 0.0]]
    assert gradients[1].tolist() == [100, 0]


def test_among_equal_sizes_the_first_go():
    gradient = torch.tensor([1.0, -1.0, 1.0, -1.0, 0.5])
    small_gradient([gradient], 0.6)
    assert gradient.tolist() == [0, 0, 1, -1, 0]


def test_against_a_sort():
    gradient = torch.randn(1001, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    expected = gradient.clone()
    expected[gradient.abs().sort(stable=True).indices[:300]] = 0
    small_gradient([gradient], 0.3)
    assert gradient.equal(expected)


def test_nan_stays_to_be_seen():
    gradient = torch.tensor([float("nan"), 1.0, 2.0, 3.0])
    small_gradient([gradient], 0.5)
    assert gradient[0].isnan()
    assert gradient[1:].tolist() == [0, 0, 3]


def test_the_part_edits_gradients_and_leaves_frozen_parameters_alone():
    used, frozen = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))
    used.grad = torch.tensor([4.0, -3.0, 2.0, -1.0])
    selectors.edit_gradients([used, frozen], parts.configure("selectors", {"name": "small_gradient", "discard": 0.5}))
    assert used.grad.tolist() == [4, -3, 0, 0]
    assert frozen.grad is None


def test_other_selectors_leave_gradients_alone():
    used = nn.Parameter(torch.zeros(2))
    used.grad = torch.tensor([4.0, 0.1])
    selectors.edit_gradients([used], parts.configure("selectors", "small_loss"))
    assert used.grad.tolist() == pytest.approx([4, 0.1])


def test_everything_cannot_be_discarded():
    with pytest.raises(Problem, match=r"discard is 1\.0"):
        small_gradient([torch.ones(2)], 1.0)
