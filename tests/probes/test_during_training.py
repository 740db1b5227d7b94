"""Probes during training: rows of metrics, resume, micro-batches, text."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import torch
from small import final_weights, same_bits, small_run, write_run

from bigbatch.advice.history import find_peaks
from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem, Stopped
from bigbatch.probes.noise_scale import noise_and_signal, noise_to_signal
from bigbatch.probing import probe_run
from bigbatch.training.loop import train

NET = {"name": "outside:Net", "dropout": 0.2}
NOISE = {"name": "noise_scale", "every_steps": 1}


def trained(run, runs_dir):
    train(run, runs_dir=runs_dir)
    return Folder(runs_dir / run.folder_name)


def test_noise_and_signal_of_a_gaussian_gradient():
    generator = np.random.default_rng(0)
    mean, sigma, pieces, size = np.full(50, 0.1), 2.0, 8, 16
    found = []
    for _ in range(2000):
        micro = mean + sigma / np.sqrt(size) * generator.standard_normal((pieces, 50))
        whole = micro.mean(axis=0)
        found.append(noise_and_signal((micro**2).sum(1).mean(), 1 / size, (whole**2).sum(), 1 / (pieces * size)))
    noise, signal = np.mean(found, axis=0)
    assert noise == pytest.approx(sigma**2 * 50, rel=0.03)
    assert signal == pytest.approx(0.5, rel=0.1)


def test_micro_gradients_are_those_of_the_micro_batches(tmp_path):
    """The probe's noise against one computed from autograd on each micro-batch by itself."""
    run = small_run(dtype="float64", probes=[NOISE], epochs=None, steps=1)
    row = trained(run, tmp_path).metrics()[0]["noise_scale"]

    from bigbatch import datasets, models, rng
    from bigbatch.position import Progress
    from bigbatch.training.batches import Batches, Split

    dataset = datasets.load(run.dataset)
    rng.seed_torch(run.seed, rng.INITIAL_WEIGHTS)
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
    # the squared norm of all 1437 gradients, of which a batch is drawn without replacement
    assert row["signal"] == pytest.approx(large - row["noise"] * (1 / 256 - 1 / 1437))
    assert row["whole"] == pytest.approx(row["noise"] / row["signal"])


def test_one_micro_batch_has_no_noise_to_compare(tmp_path):
    with pytest.raises(Problem, match="a batch of 256 is a single one here: use --set micro_batch=64"):
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
    with pytest.raises(Stopped):
        train(run, runs_dir=tmp_path)
    stopped_and_resumed = trained(run, tmp_path)
    whole = trained(run, tmp_path / "whole")
    batches = [row["global_batch"] for row in whole.metrics() if "lr" in row]
    assert batches[:22] == [64] * 22
    assert max(batches) > 64  # it grew
    assert [row["global_batch"] for row in stopped_and_resumed.metrics() if "lr" in row] == batches
    assert same_bits(final_weights(stopped_and_resumed), final_weights(whole))


def test_a_last_batch_of_one_micro_batch_is_a_sentence_in_its_row_and_the_run_goes_on(tmp_path):
    rows = rows_of(trained(small_run(global_batch=128, probes=[NOISE]), tmp_path), "noise_scale")  # 11·128 + 29
    assert rows[11] == {
        "problem": "the last batch of the epoch, 29 samples, is a single micro-batch: nothing to compare here"
    }
    assert rows[12]["noise_average"] == pytest.approx(0.9 * rows[10]["noise_average"] + 0.1 * rows[12]["noise"])


def rows_of(folder, name):
    return [row[name] for row in folder.metrics() if name in row]


def test_noise_has_averages_of_its_parts_and_an_interval_once_there_are_rows(tmp_path):
    rows = rows_of(trained(small_run(probes=[NOISE]), tmp_path), "noise_scale")
    assert rows[1]["noise_average"] == pytest.approx(0.9 * rows[0]["noise"] + 0.1 * rows[1]["noise"])
    assert rows[1]["whole"] == pytest.approx(rows[1]["noise_average"] / rows[1]["signal_average"])
    assert [row["interval"] is None for row in rows] == [True] * 7 + [False] * 5
    low, high = rows[-1]["interval"]
    assert low < rows[-1]["whole"] < high
    layers = rows[-1]["layers"]
    assert set(layers) == {"layers.0.weight", "layers.0.bias", "head.weight", "head.bias"}
    assert sum(layer["noise_average"] for layer in layers.values()) == pytest.approx(rows[-1]["noise_average"])


def test_strides_add_up_to_a_search_space_over_a_resume(tmp_path):
    watched = {"name": "stride", "every_steps": 2, "full_samples": 32}
    dying = {"name": "outside:DyingSGD", "lr": 0.1, "marker": str(tmp_path / "died"), "at_step": 9, "signal_number": 15}
    run = small_run(probes=[watched], optimizer=dying)
    with pytest.raises(Stopped):
        train(run, runs_dir=tmp_path)
    rows = rows_of(trained(run, tmp_path), "stride")
    assert [row["epoch"] for row in rows] == [0, 0, 0, 1, 1, 1]
    assert rows[2]["epoch_stride"] == pytest.approx(sum(row["stride"] for row in rows[:3]) / 3)
    assert rows[5]["epoch_stride"] == pytest.approx(sum(row["stride"] for row in rows[3:]) / 3)
    assert rows[5]["epoch_normalised"] == pytest.approx(rows[5]["epoch_stride"] / 0.1)
    assert rows[5]["search_space"] == pytest.approx(2 * sum(row["stride"] for row in rows))
    whole = rows_of(trained(run, tmp_path / "whole"), "stride")
    assert rows == whole


def test_the_loss_stride_starts_from_the_loss_that_was_learned_from(tmp_path):
    folder = trained(small_run(model=NET, dtype="float64", probes=[{"name": "stride", "every_steps": 1}]), tmp_path)
    for row in folder.metrics():
        if "stride" in row:
            assert row["stride"]["same_batch"]["before"] == pytest.approx(row["train_loss"], rel=1e-9)
    first = folder.metrics()[0]["stride"]  # a small plain step: what it gains is first order
    assert first["same_batch"]["fall"] == pytest.approx(first["first_order"], rel=0.2)


def test_the_peak_of_the_lipschitz_constant_is_carried_along_and_compared_over_batches(tmp_path):
    folders = []
    for batch in (512, 128):
        run = small_run(global_batch=batch, probes=[{"name": "lipschitz", "every_steps": 1}])
        folders.append(trained(run, tmp_path))
        rows = rows_of(folders[-1], "lipschitz")
        highest = max(rows, key=lambda row: row["exact"])
        assert rows[-1]["peak"] == {key: highest[key] for key in ("exact", "step", "epochs")}
    table = find_peaks(folder.path for folder in folders)
    assert [row["run"] for row in table] == [str(folders[1].path), str(folders[0].path)]
    assert table[0]["step"] == rows[-1]["peak"]["step"]
    assert find_peaks([trained(small_run(), tmp_path).path]) == []


def test_a_gradient_that_is_not_finite_is_a_sentence_in_the_row_and_the_run_goes_on(tmp_path):
    class Rootless(torch.nn.Module):
        """√0 has a finite value and no finite slope."""

        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(64, 10)

        def forward(self, x):
            return self.head(x.flatten(1)) + (0 * self.head.weight.sum()).sqrt()

    module = types.ModuleType("rootless")
    module.Rootless = Rootless
    sys.modules["rootless"] = module
    asked = [{"name": name, "every_steps": 6} for name in ("ratio", "noise_scale", "lipschitz", "stride", "sharpness")]
    folder = trained(small_run(model="rootless:Rootless", probes=asked, epochs=None, steps=1), tmp_path)
    row = folder.metrics()[0]
    for name in ("ratio", "noise_scale", "lipschitz", "sharpness"):
        assert row[name] == {
            "problem": "the gradient is not finite: probe an earlier checkpoint, or train with a lower learning rate"
        }
    assert "the loss is not finite next to this step" in row["stride"]["problem"]


def test_text_is_probed_without_disturbing_the_state_it_carries(tmp_path):
    data = tmp_path / "data" / "ptb"
    data.mkdir(parents=True)
    words = " ".join(f"w{i % 7} w{i * i % 5}" for i in range(600))
    for part in ("train", "valid", "test"):
        (data / f"ptb.{part}.txt").write_text(f" {words} \n" * 3)
    model = {"name": "lstm_words", "embedding": 8, "hidden": 8, "layers": 1}
    weights = []
    for asked in ([], ["lipschitz", "stride", "noise_scale", "gradient"]):
        run = small_run(
            dataset={"name": "ptb", "steps": 5, "official": False},
            model=model,
            global_batch=8,
            micro_batch=4,
            epochs=None,
            steps=6,
            probes=[{"name": name, "every_steps": 2} for name in asked],
        )
        train(run, runs_dir=tmp_path, data_dir=tmp_path / "data")
        folder = Folder(tmp_path / run.folder_name)
        weights.append(final_weights(folder))
    assert same_bits(*weights)
    assert len(rows_of(folder, "lipschitz")) == 3


def test_the_noise_scale_of_a_training_is_that_of_its_data_set(tmp_path):
    """A batch of all samples has the gradient G itself. Taken for a sample of a population, |G|² would be less."""
    run = small_run(dtype="float64", global_batch=1437, micro_batch=16, probes=[NOISE], epochs=None, steps=1)
    row = trained(run, tmp_path).metrics()[0]
    at_rest = probe_run(str(write_run(run, tmp_path)), names=["noise_scale"])["probes"]["noise_scale"]
    assert row["noise_scale"]["signal"] == pytest.approx(at_rest["signal"])
    assert row["noise_scale"]["whole"] == pytest.approx(at_rest["whole"], rel=0.2)  # Σ from other micro-batches


def test_without_smoothing_each_row_stands_alone_and_its_interval_is_that_of_one_row(tmp_path):
    rows = rows_of(trained(small_run(probes=[NOISE | {"smoothing": 0.0}]), tmp_path), "noise_scale")
    for row in rows:
        assert row["whole"] == pytest.approx(row["noise"] / row["signal"])
    low, high = rows[-1]["interval"]
    assert low < rows[-1]["whole"] < high
    smoothed = rows_of(trained(small_run(probes=[NOISE]), tmp_path), "noise_scale")[-1]["interval"]
    assert high / low > 1.5 * smoothed[1] / smoothed[0]


@pytest.mark.parametrize(("noise", "signal"), [(10.0, -1.0), (10.0, 0.0), (0.0, 1.0), (-1e-9, 1.0), (1e-9, 1.0)])
def test_a_noise_scale_that_cannot_be_told_is_none(noise, signal):
    assert noise_to_signal(noise, signal) is None
    assert noise_to_signal(10.0, 2.0) == 5.0
