from __future__ import annotations

import numpy as np
import pytest
import torch
from small import final_weights, same_bits, small_run

from bigbatch.errors import Problem
from bigbatch.probes.noise_scale import parts_of
from bigbatch.results import Folder
from bigbatch.training import train

NET = {"name": "outside:Net", "dropout": 0.2}
NOISE = {"name": "noise_scale", "every_steps": 1}


def trained(run, runs_dir):
    train(run, runs_dir=runs_dir)
    return Folder(runs_dir / run.folder_name)


def test_noise_and_signal_by_hand():
    # |G|² = 3, trΣ = 80: E|g|² is 3 + 80/8 = 13 for 8 samples and 3 + 80/32 = 5.5 for 32
    assert parts_of(13.0, 1 / 8, 5.5, 1 / 32) == pytest.approx((80.0, 3.0))


def test_noise_and_signal_of_a_gaussian_gradient():
    generator = np.random.default_rng(0)
    mean, sigma, pieces, size = np.full(50, 0.1), 2.0, 8, 16
    found = []
    for _ in range(2000):
        micro = mean + sigma / np.sqrt(size) * generator.standard_normal((pieces, 50))
        whole = micro.mean(axis=0)
        found.append(parts_of((micro**2).sum(1).mean(), 1 / size, (whole**2).sum(), 1 / (pieces * size)))
    noise, signal = np.mean(found, axis=0)
    assert noise == pytest.approx(sigma**2 * 50, rel=0.03)
    assert signal == pytest.approx(0.5, rel=0.1)


def test_micro_gradients_are_those_of_the_micro_batches(tmp_path):
    """The probe's noise against one computed from autograd on each micro-batch by itself."""
    run = small_run(dtype="float64", probes=[NOISE], epochs=None, steps=1)
    row = trained(run, tmp_path).metrics()[0]["noise_scale"]

    from bigbatch import datasets, keyed, models
    from bigbatch.batches import Batches, Progress, Split

    dataset = datasets.load(run.dataset)
    keyed.seed_torch(run.seed, keyed.INITIAL_WEIGHTS)
    model = models.build(run.model, dataset).double()
    indices = Batches(dataset, run.seed).next(Progress(), 256, Split(1, 64)).indices
    gradients = []
    for piece in indices.split(64):
        inputs, targets = dataset.train.fetch(piece, seed=run.seed, epoch=0)
        loss = torch.nn.functional.cross_entropy(model(inputs.double()), targets)
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))]))
    stacked = torch.stack(gradients)
    small, large = stacked.square().sum(1).mean().item(), stacked.mean(0).square().sum().item()
    assert row["noise"] == pytest.approx((small - large) / (1 / 64 - 1 / 256))
    assert row["signal"] == pytest.approx((256 * large - 64 * small) / (256 - 64))
    assert row["whole"] == pytest.approx(row["noise"] / row["signal"])


@pytest.mark.parametrize("probe", [{"name": "ratio", "every_steps": 5}, {"name": "noise_scale", "every_steps": 2}])
def test_a_probe_only_reads(tmp_path, probe):
    without = trained(small_run(model=NET), tmp_path)
    probed = trained(small_run(model=NET, probes=[probe]), tmp_path)
    assert same_bits(final_weights(without), final_weights(probed))
    found = [row["step"] for row in probed.metrics() if probe["name"] in row]
    assert found == list(range(1, 13, probe["every_steps"]))


def test_one_micro_batch_has_no_noise_to_compare(tmp_path):
    with pytest.raises(Problem, match="a batch of 256 is one of them here: use --set micro_batch=64"):
        train(small_run(micro_batch=256, probes=[NOISE]), runs_dir=tmp_path)


def test_the_batch_follows_the_noise_and_a_resume_does_not_disturb_it(tmp_path):
    follows = {"name": "noise_scale", "start": 64, "minimum": 64, "maximum": 1024, "fraction": 4}
    optimizer = {
        "name": "outside:DyingSGD",
        "lr": 0.1,
        "marker": str(tmp_path / "died"),
        "at_step": 25,
        "signal_number": 15,
    }
    run = small_run(global_batch=follows, micro_batch=16, probes=[NOISE], epochs=4, optimizer=optimizer)
    from bigbatch.errors import Stopped

    with pytest.raises(Stopped):
        train(run, runs_dir=tmp_path)
    stopped_and_resumed = trained(run, tmp_path)
    whole = trained(run, tmp_path / "whole")
    batches = [row["global_batch"] for row in whole.metrics() if "rate" in row]
    assert batches[:22] == [64] * 22
    assert max(batches) > 64  # it grew
    assert [row["global_batch"] for row in stopped_and_resumed.metrics() if "rate" in row] == batches
    assert same_bits(final_weights(stopped_and_resumed), final_weights(whole))
