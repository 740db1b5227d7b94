"""Text trains exactly, with a hidden state or in shuffled windows: in micro-batches, after a stop, on two ranks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small import bigbatch, final_weights, same_bits, small_run, write_run

from bigbatch import datasets, models, parts, rng
from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem, Stopped
from bigbatch.position import Slice
from bigbatch.training.hidden_state import HiddenState
from bigbatch.training.loop import train


@pytest.fixture
def text(tmp_path):
    """A made-up language in the layout of the Penn Treebank: each line counts on from a number of its own."""
    folder = tmp_path / "data" / "ptb"
    folder.mkdir(parents=True)
    words = [f"w{n}" for n in range(12)]
    for name, lines in (("train", 150), ("valid", 10), ("test", 40)):
        starts = rng.integers(12, len(name), np.arange(lines))
        rows = [" ".join([words[(start + n) % 12] for n in range(12)] + ["<unk>"]) for start in starts]
        (folder / f"ptb.{name}.txt").write_text("\n".join(rows) + "\n")
    return tmp_path / "data"


GPT = {
    "dataset": {"name": "ptb", "steps": 5, "official": False, "shuffle": True},
    "model": {"name": "gpt", "width": 8, "heads": 2},
}
both_models = pytest.mark.parametrize("fields", [{}, GPT], ids=["lstm", "gpt"])


def text_run(**fields):
    return small_run(
        **(
            {
                "dataset": {"name": "ptb", "steps": 5, "official": False},
                "model": {"name": "lstm_words", "embedding": 8, "hidden": 8, "layers": 2},
                "global_batch": 12,
                "micro_batch": 12,
                "optimizer": {"name": "momentum", "lr": 0.5},
                "dtype": "float64",
            }
            | fields
        )
    )


def trained(run, runs_dir, text):
    train(run, runs_dir=runs_dir, data_dir=text)
    return Folder(runs_dir / run.folder_name)


@pytest.mark.parametrize(("fields", "factor"), [({}, 0.5), (GPT, 0.75)], ids=["lstm", "gpt"])
def test_perplexity_falls(tmp_path, text, fields, factor):
    folder = trained(text_run(**fields, epochs=8, optimizer={"name": "adam", "lr": 0.03}), tmp_path, text)
    perplexities = [row["test_perplexity"] for row in folder.metrics() if "test_perplexity" in row]
    assert perplexities[-1] < factor * perplexities[0]
    assert perplexities[-1] < 14 / 4  # of 14 words
    assert folder.summary()["test_perplexity"] == perplexities[-1]


def test_state_is_carried_as_in_one_long_sequence(tmp_path, text):
    """The losses of an epoch at a learning rate of almost nothing are those of whole streams read at once."""
    run = text_run(optimizer={"name": "sgd", "lr": 1e-300}, epochs=1, micro_batch=4)
    rows = [row for row in trained(run, tmp_path, text).metrics() if "lr" in row]
    dataset = datasets.load(run.dataset, text)
    rng.seed_torch(run.seed, rng.INITIAL_WEIGHTS)
    model = models.build(run.model, dataset).double()
    windows = dataset.train.as_streams(12)
    steps = len(windows) // 12
    fetched = [windows.fetch(torch.arange(12 * step, 12 * step + 12)) for step in range(steps)]
    inputs, targets = (torch.cat([pair[i] for pair in fetched], dim=1) for i in (0, 1))
    logits, _ = model(inputs)
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    expected = losses.view(12, steps, 5).mean(dim=(0, 2))
    assert [row["train_loss"] for row in rows] == pytest.approx(expected.tolist())


@both_models
def test_micro_batches_change_nothing(tmp_path, text, fields):
    whole = final_weights(trained(text_run(**fields), tmp_path, text))
    for micro in (5, 1):
        split = final_weights(trained(text_run(**fields, micro_batch=micro), tmp_path, text))
        assert all(torch.allclose(whole[name], split[name], atol=1e-10) for name in whole)


@both_models
def test_a_stop_in_an_epoch_changes_nothing(tmp_path, text, fields):
    dies = {"name": "outside:DyingSGD", "lr": 0.5, "marker": str(tmp_path / "died"), "at_step": 17, "signal_number": 15}
    run = text_run(**fields, optimizer=dies, micro_batch=5)
    with pytest.raises(Stopped):
        train(run, runs_dir=tmp_path, data_dir=text)
    resumed = trained(run, tmp_path, text)
    assert same_bits(final_weights(resumed), final_weights(trained(run, tmp_path / "whole", text)))


@both_models
def test_two_ranks_stopped_in_an_epoch_and_one_process_going_on_give_the_same(tmp_path, text, fields):
    dies = {"name": "outside:DyingSGD", "lr": 0.5, "marker": str(tmp_path / "died"), "at_step": 17, "signal_number": 15}
    run = text_run(**fields, optimizer=dies)
    ranks = Folder(tmp_path / run.with_settings(["engine=ddp"]).folder_name)
    bigbatch("train", write_run(run, tmp_path), "--ranks", 2, *_places(tmp_path, text), expect=75)
    bigbatch("resume", ranks.path, "--data-dir", text)
    alone = final_weights(trained(run, tmp_path, text))
    resumed = final_weights(ranks)
    assert all(torch.allclose(alone[name], resumed[name], atol=1e-10) for name in alone)


def test_samples_of_shuffled_text_may_be_selected(tmp_path, text):
    folder = trained(text_run(**GPT, epochs=1, selector={"name": "small_loss", "discard": 0.5}), tmp_path, text)
    assert {row["kept"] for row in folder.metrics() if row.get("global_batch") == 12} == {6}


def test_tied_weights_are_sharded_as_one_process_has_them(tmp_path, text):
    run = text_run(**GPT, epochs=1, clip_norm=0.5, sam_radius=0.05)
    bigbatch("train", write_run(run, tmp_path), *("--set", "engine=fsdp", "--ranks", 2), *_places(tmp_path, text))
    sharded = final_weights(tmp_path / run.with_settings(["engine=fsdp"]).folder_name)
    alone = final_weights(trained(run, tmp_path, text))
    assert all(torch.allclose(alone[name], sharded[name], atol=1e-10) for name in alone)


def _places(runs_dir, data_dir):
    return "--runs-dir", runs_dir, "--data-dir", data_dir


def test_a_state_is_put_together_from_its_parts():
    class TwoRanks:
        def sum(self, tensor):
            return tensor

    state = HiddenState(4)
    assert state.take(Slice(0, 2)) is None
    state.put(Slice(2, 4), (torch.ones(1, 2, 3),))
    (whole,) = state.gather(TwoRanks())
    assert whole[0, :, 0].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"global_batch": 5000, "micro_batch": 50}, "cannot be cut into 5,000 streams of 5 steps"),
        ({"selector": {"name": "small_loss", "discard": 0.3}}, "leaves out samples, but text is one stream"),
        ({"filter": {"name": "random"}}, "chooses samples, but text is one stream"),
        ({"model": "mlp"}, "mlp|image|text|language"),
    ],
)
def test_what_text_cannot_do_is_one_sentence(tmp_path, text, fields, sentence):
    with pytest.raises(Problem, match=sentence):
        train(text_run(**fields), runs_dir=tmp_path, data_dir=text)


@pytest.mark.realdata
@pytest.mark.parametrize(("global_batch", "steps", "fall"), [(20, 60, 1.0), (640, 8, 0.2)])
def test_the_ptb_lstm_learns_at_both_ends_of_legw(tmp_path, global_batch, steps, fall):
    run = parts.find("recipes", "legw_ptb").run().with_settings([f"global_batch={global_batch}", f"steps={steps}"])
    run = run.with_settings(["schedule.warmup_epochs=0.001"])  # so few steps are less than an epoch
    folder = Folder(tmp_path / run.folder_name)
    summary = train(run, runs_dir=tmp_path)
    losses = [row["train_loss"] for row in folder.metrics() if "lr" in row]
    assert folder.status == "done"
    assert losses[-1] < losses[0] - fall
    assert summary["test_perplexity"] < 10_000


def test_sharded_weights_keep_a_hidden_state(tmp_path, text):
    run = text_run(epochs=1, micro_batch=6)
    alone = trained(run, tmp_path / "alone", text)
    sharded = run.with_settings(["engine=fsdp"])
    bigbatch("train", write_run(sharded, tmp_path), "--ranks", 2, "--runs-dir", tmp_path, "--data-dir", text)
    a, b = final_weights(alone), final_weights(tmp_path / sharded.folder_name)
    assert all(torch.allclose(a[name], b[name], atol=1e-10) for name in a)
