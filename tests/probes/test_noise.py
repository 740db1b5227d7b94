"""The noise scale and mean |g| against models whose Σ and G are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from analytic import DELTA, half_square, regression
from torch import nn

from bigbatch.errors import Problem
from bigbatch.probes import gradient, noise_scale
from bigbatch.probes.gradient import choose_batches, folded_normal
from bigbatch.probes.noise_scale import bootstrap_interval, noise_and_signal

SQUARE = float(DELTA @ DELTA)  # |δ|² = 0.9


def test_noise_and_signal_by_hand():
    # |G|² = 3, trΣ = 80: E|g|² is 3 + 80/8 = 13 for 8 samples and 3 + 80/32 = 5.5 for 32
    assert noise_and_signal(13.0, 1 / 8, 5.5, 1 / 32) == pytest.approx((80.0, 3.0))


def test_noise_scale_of_linear_regression_lies_in_its_own_interval():
    """φ = (d(|δ|² + s²) + |δ|²)/|δ|² = (6·4.9 + 0.9)/0.9 = 33.7; 90 % intervals, so about 90 of 100."""
    truth = (6 * (SQUARE + 4) + SQUARE) / SQUARE
    hits, scales = 0, []
    for seed in range(100):
        model, data = regression(seed, 3000, DELTA, noise=2.0)
        found = noise_scale(model, half_square, data, global_batch=64, micro_batch=16, batches=16, seed=seed)
        low, high = found["interval"]
        hits += low <= truth <= (math.inf if high is None else high)
        scales.append(found["whole"])
    assert 85 <= hits <= 97
    assert np.median(scales) == pytest.approx(truth, rel=0.1)


def test_a_batch_far_below_the_noise_gives_only_a_lower_bound():
    model, data = regression(0, 2000, DELTA / 30, noise=2.0)  # φ is about 24,000, the batch 16
    found = noise_scale(model, half_square, data, global_batch=16, micro_batch=4, batches=8)
    assert found["only_lower_bound"]
    assert found["interval"][1] is None
    assert found["interval"][0] > 0


def test_the_quotient_is_of_means_never_a_mean_of_quotients():
    # three rows whose quotients are 10, −100 and 10; their mean would be −26.7
    low, high = bootstrap_interval([100.0] * 9, [10.0, -1.0, 10.0] * 3)
    assert 0 < low < 100 / 6.33 < high


def test_layers_add_up_to_the_whole():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    data = torch.randn(200, 5).double(), torch.randint(3, (200,))
    found = noise_scale(model, nn.functional.cross_entropy, data, global_batch=50, micro_batch=15, batches=8)
    assert list(found["layers"]) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    for part in ("noise", "signal"):
        assert sum(layer[part] for layer in found["layers"].values()) == pytest.approx(found[part])


class Sheet(nn.Module):
    """Its gradient for a sample is the sample: mean |g| is that of the data."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, 1, bias=False, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x).squeeze(-1)


def test_mean_gradient_of_a_gaussian_follows_the_corrected_line_not_the_printed_one():
    x = 3.0 * torch.randn(2048, 500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x -= x.mean(dim=0)  # G = 0: the paper's case
    data = x, torch.zeros(2048)
    found = gradient(Sheet(500), lambda out, y: out, data, batches=[32, 64, 128], discards=())
    assert (found["layer"], found["population"]) == ("head.weight", 2048)
    for row in found["by_batch"]:
        exact = 3.0 * math.sqrt(2 / math.pi / row["batch"])
        assert row["corrected"] == pytest.approx(exact, rel=0.03)
        assert row["printed"] == pytest.approx(math.sqrt(2) * exact, rel=0.03)
        assert row["measured"] == pytest.approx(exact, rel=0.05)  # 128 of 2048 without replacement: 3 % less
        assert row["measured"] == pytest.approx(row["folded"], rel=0.03)
    whole = gradient(Sheet(500), lambda out, y: out, data, discards=())
    by_batch = {row["batch"]: row for row in whole["by_batch"]}
    assert by_batch[32]["measured"] == pytest.approx(3.0 * math.sqrt(2 / math.pi / 32), rel=0.03)
    assert whole["exponent"] == pytest.approx(-0.5, abs=0.12)  # without replacement it bends down near N
    assert by_batch[2048]["measured"] == pytest.approx(0, abs=1e-12)  # at n = N only |G| is left


def test_a_mean_gradient_bends_the_line_as_the_folded_normal_says():
    x = 0.5 + 3.0 * torch.randn(1024, 400, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = gradient(Sheet(400), lambda out, y: out, (x, torch.zeros(1024)), discards=())
    for row in found["by_batch"]:
        assert row["measured"] == pytest.approx(row["folded"], rel=0.03)
    assert found["by_batch"][-1]["measured"] == pytest.approx(float(x.mean(dim=0).abs().mean()))
    assert found["by_batch"][-1]["measured"] > 3 * found["by_batch"][-1]["corrected"]
    assert found["exponent"] > -0.35


def test_folded_normal_by_hand():
    # σ = 1: √(2/π) for μ = 0; μ = 1 gives 1.16663; σ = 0 is |μ|
    means, deviations = torch.tensor([0.0, 1.0, -2.0]).double(), torch.tensor([1.0, 1.0, 0.0]).double()
    assert folded_normal(means, deviations).tolist() == pytest.approx([0.797885, 1.166630, 2.0], abs=1e-5)


def test_discarding_small_losses_by_hand():
    """Losses 1, 2, 3, 4 with gradients of the same size: the divisor decides, and is stated."""
    x = torch.tensor([[1.0], [2.0], [3.0], [4.0]], dtype=torch.float64)
    model = Sheet(1)
    with torch.no_grad():
        model.head.weight.fill_(1.0)
    found = gradient(model, lambda out, y: out, (x, torch.zeros(4)), batches=[2, 4], discards=(0.5,))
    whole, half = found["by_discard"]
    assert (whole["kept"], whole["all"]) == (2.5, 2.5)
    assert (half["kept"], half["all"]) == (3.5, 1.75)
    assert half["cosine"] == pytest.approx(1.0)


def test_batches_of_a_range():
    assert choose_batches(None, 1437) == [32, 64, 128, 256, 512, 1024, 1408]
    assert choose_batches([32, 100], 200) == [32, 96]
    with pytest.raises(Problem, match="cannot draw a batch of 4096 from 1437 samples: use batches of at most 1437"):
        choose_batches([32, 4096], 1437)
