"""Sums that do not depend on their order: by hand, against exact fractions, and on 1, 2 and 4 real ranks."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
import torch
from small import bigbatch, final_weights, same_bits, small_run, write_run
from torch import nn

from bigbatch.engines.local import Local
from bigbatch.errors import Problem
from bigbatch.training.exact_sum import ExactSum
from bigbatch.training.loop import train


def exact_sum(gradients: list[torch.Tensor]) -> torch.Tensor:
    layer = nn.Linear(gradients[0].numel(), 1, bias=False)
    total = ExactSum(layer)
    for gradient in gradients:
        layer.weight.grad = gradient.view_as(layer.weight).clone()
        total.add()
    total.reduce(Local())
    return layer.weight.grad.flatten()


def test_what_floats_lose_is_kept():
    # in float32 1 + 2⁻²⁵ is 1, and 2¹⁹ + 2⁻²⁰ - 2¹⁹ is 0
    assert exact_sum([torch.tensor([1.0]), *[torch.tensor([2.0**-25])] * 4]).item() == 1 + 2**-23
    assert exact_sum([torch.tensor([x]) for x in (2.0**19, 2.0**-20, -(2.0**19))]).item() == 2.0**-20


def test_the_largest_numbers_do_not_overflow():
    largest = torch.tensor([2.0**20 - 1])
    assert exact_sum([largest] * 1000).item() == pytest.approx(1000 * (2.0**20 - 1))


def test_every_order_gives_the_same_bits_and_the_rounded_exact_sum():
    torch.manual_seed(0)
    gradients = [torch.randn(50) * 10.0**exponent for exponent in (-6, -3, 0, 2)]
    sums = [exact_sum(list(order)) for order in itertools.permutations(gradients)]
    assert all(torch.equal(sums[0], other) for other in sums)
    plain = {tuple(torch.stack(list(order)).sum(0).tolist()) for order in itertools.permutations(gradients)}
    assert len(plain) > 1  # floats do depend on it
    exact = [float(sum(Fraction(float(gradient[place])) for gradient in gradients)) for place in range(50)]
    assert torch.equal(sums[0], torch.tensor(exact, dtype=torch.float64).float())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2.0**20])
def test_a_number_out_of_range_is_not_hidden(value):
    assert exact_sum([torch.tensor([1.0, value]), torch.tensor([1.0, 1.0])]).isnan().all()


EXACT = small_run(reduction="exact", epochs=1)


def test_ranks_do_not_change_a_bit(tmp_path):
    # the last batch has 157 samples: three micro-batches, so that a rank of four has none
    train(EXACT, runs_dir=tmp_path)
    alone = final_weights(tmp_path / EXACT.folder_name)
    for ranks in (2, 4):
        bigbatch("train", write_run(EXACT, tmp_path), "--ranks", ranks, "--runs-dir", tmp_path / str(ranks))
        found = final_weights(tmp_path / str(ranks) / EXACT.on_ranks(ranks, "ddp").folder_name)
        assert same_bits(found, alone), ranks


def test_earlier_runs_keep_their_hashes():
    assert "reduction" not in small_run().to_dict()
    assert small_run(reduction="exact").hash != small_run().hash


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"micro_batch": "auto"}, "needs micro-batches of one size: use --set micro_batch=64"),
        ({"selector": "small_loss"}, "use --set reduction=float"),
    ],
)
def test_what_it_does_not_support_is_a_sentence(tmp_path, fields, sentence):
    with pytest.raises(Problem, match=sentence):
        train(small_run(reduction="exact", **fields), runs_dir=tmp_path)
