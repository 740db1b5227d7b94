"""A training is exactly repeatable, can be stopped anywhere, and goes on as if nothing had happened."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from small import bigbatch, final_weights, same_bits, small_run, write_run

from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem, Stopped
from bigbatch.run import Run
from bigbatch.training.loop import TrainOptions, train, train_in_folder

NET = {"name": "outside:Net", "dropout": 0.2}  # with dropout and BatchNorm


def trained(run, tmp_path, **options):
    summary = train(run, runs_dir=tmp_path, **options)
    return summary, Folder(tmp_path / run.folder_name)


def test_a_run_leaves_its_files(tmp_path):
    run = small_run()
    summary, folder = trained(run, tmp_path)
    assert folder.status == "done"
    assert summary == folder.summary()
    assert summary["test_accuracy"] > 0.5
    assert {"train_loss", "seconds", "samples_per_second", "peak_rss_mb"} <= summary.keys()
    rows = folder.metrics()
    assert all({"epoch", "samples", "step"} <= row.keys() for row in rows)
    steps = [row for row in rows if "lr" in row]
    assert [row["step"] for row in steps] == list(range(1, 13))  # 1437 / 256: six a epoch
    assert sum(row["global_batch"] for row in steps) == 2 * 1437 == summary["samples"]
    tests = [row for row in rows if "test_accuracy" in row]
    assert [row["epoch"] for row in tests] == [1.0, 2.0]
    assert tests[-1]["test_accuracy"] == summary["test_accuracy"]
    mean_loss = sum(r["train_loss"] * r["global_batch"] for r in steps[6:]) / 1437
    assert summary["train_loss"] == pytest.approx(mean_loss)


def test_a_finished_run_is_not_run_again_unless_asked(tmp_path):
    first, folder = trained(small_run(), tmp_path)
    before = (folder.path / "summary.json").stat().st_mtime_ns
    assert trained(small_run(), tmp_path)[0] == first
    assert (folder.path / "summary.json").stat().st_mtime_ns == before
    trained(small_run(), tmp_path, fresh=True)
    assert (folder.path / "summary.json").stat().st_mtime_ns > before
    assert len([row for row in folder.metrics() if "lr" in row]) == 12


@pytest.mark.parametrize("model", ["cnn", NET], ids=["cnn", "dropout and BatchNorm"])
def test_two_runs_of_one_seed_are_equal_to_the_bit(tmp_path, model):
    run = small_run(model=model, micro_batch="auto")
    _, a = trained(run, tmp_path / "a")
    _, b = trained(run, tmp_path / "b")
    _, c = trained(run.with_settings(["seed=1"]), tmp_path / "c")
    assert same_bits(final_weights(a), final_weights(b))
    assert not same_bits(final_weights(a), final_weights(c))


def dying(tmp_path, model, at_step, **options):
    optimizer = {"name": "outside:DyingSGD", "lr": 0.05, "marker": str(tmp_path / "died"), "at_step": at_step}
    return small_run(model=model, optimizer=optimizer | options, epochs=3)


@pytest.mark.parametrize("model", ["cnn", NET], ids=["cnn", "dropout and BatchNorm"])
@pytest.mark.parametrize("checkpoint_minutes", [10, 0], ids=["at epoch ends", "at each step"])
def test_kill_9_in_an_epoch_changes_nothing_in_the_end(tmp_path, model, checkpoint_minutes):
    run = dying(tmp_path, model, at_step=10)
    folder = Folder(tmp_path / run.folder_name)
    arguments = ("--runs-dir", tmp_path, "--checkpoint-minutes", checkpoint_minutes)
    killed = bigbatch("train", write_run(run, tmp_path), *arguments, expect=None)
    assert killed.returncode == -signal.SIGKILL
    assert folder.status == "running"
    assert max((folder.path / "checkpoint").iterdir()).name == (
        "step-00000006" if checkpoint_minutes else "step-00000009"
    )
    bigbatch("resume", folder.path)
    assert folder.status == "done"

    _, whole = trained(run, tmp_path / "whole")  # the marker is there: this one does not die
    assert same_bits(final_weights(folder), final_weights(whole))
    without_time = [[{k: v for k, v in row.items() if k != "seconds"} for row in f.metrics()] for f in (folder, whole)]
    assert without_time[0] == without_time[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_writes_a_checkpoint_and_ends_with_a_code_of_its_own(tmp_path, number):
    run = dying(tmp_path, "cnn", at_step=8, signal_number=int(number))
    folder = Folder(tmp_path / run.folder_name)
    stopped = bigbatch("train", write_run(run, tmp_path), "--runs-dir", tmp_path, expect=75)
    assert f"'bigbatch resume {folder.path}' continues it" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert folder.status == "stopped"
    assert len([row for row in folder.metrics() if "lr" in row]) == 9  # the step that was under way is the last
    bigbatch("train", write_run(run, tmp_path), "--runs-dir", tmp_path)  # train goes on as well as resume
    _, whole = trained(run, tmp_path / "whole")
    assert same_bits(final_weights(folder), final_weights(whole))


def test_a_run_that_diverges_says_so_and_keeps_its_rows(tmp_path):
    run = small_run(optimizer={"name": "outside:ExplodingSGD", "lr": 0.05})
    done = bigbatch("train", write_run(run, tmp_path), "--runs-dir", tmp_path, expect=3)
    folder = Folder(tmp_path / run.folder_name)
    assert "diverged, the loss was not finite at step 4" in done.stdout
    assert folder.status == "diverged"
    assert folder.summary()["diverged_at_step"] == 4
    assert [row["step"] for row in folder.metrics()] == [1, 2, 3, 4]
    assert folder.metrics()[-1]["diverged"] is True
    for line in (folder.path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_a_last_update_that_diverges_is_noticed(tmp_path):
    run = small_run(optimizer={"name": "sgd", "lr": 1e30}, epochs=None, steps=1)
    summary, folder = trained(run, tmp_path)
    assert folder.status == "diverged"
    assert summary["diverged_at_step"] == 1
    json.loads((folder.path / "summary.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name}: no JSON"))


def test_fresh_destroys_nothing_where_the_new_run_cannot_begin(tmp_path):
    summary, folder = trained(small_run(), tmp_path)
    with pytest.raises(Problem, match="global_batch 4096 is larger"):
        train_in_folder(small_run(global_batch=4096), folder, TrainOptions(fresh=True))
    assert folder.status == "done"
    assert folder.summary() == summary


def test_a_stopped_run_without_its_checkpoint_is_refused(tmp_path):
    run = dying(tmp_path, "cnn", at_step=3, signal_number=int(signal.SIGTERM))
    with pytest.raises(Stopped):
        train(run, runs_dir=tmp_path)
    folder = Folder(tmp_path / run.folder_name)
    shutil.rmtree(folder.checkpoints)
    with pytest.raises(Problem, match="has no checkpoint of step 4 or later, but this run saved one"):
        train(run, runs_dir=tmp_path)
    assert len(folder.metrics()) == 4


def test_a_resume_after_a_smaller_stage_keeps_the_micro_batch(tmp_path):
    batches = [(0, 512), (1, 64), (2, 512)]
    stages = [{"from_epoch": epoch, "global_batch": batch} for epoch, batch in batches]
    run = dying(tmp_path, "cnn", at_step=10, signal_number=int(signal.SIGTERM))
    run = Run(**(run.model_dump() | {"global_batch": {"name": "steps", "stages": stages}, "micro_batch": 256}))
    with pytest.raises(Stopped):
        train(run, runs_dir=tmp_path)
    _, resumed = trained(run, tmp_path)
    _, whole = trained(run, tmp_path / "whole")
    assert same_bits(final_weights(resumed), final_weights(whole))


def test_one_sample_left_over_for_batchnorm_is_one_sentence(tmp_path):
    with pytest.raises(Problem, match="BatchNorm cannot normalise a batch of one sample"):
        train(small_run(model=NET, global_batch=359), runs_dir=tmp_path)  # 1437 = 4 · 359 + 1


def test_a_budget_of_steps(tmp_path):
    summary, _ = trained(small_run(epochs=None, steps=8), tmp_path)
    assert summary["steps"] == 8
    assert summary["epochs"] == pytest.approx(1 + 512 / 1437)


def test_bfloat16_trains(tmp_path):
    summary, folder = trained(small_run(dtype="bfloat16"), tmp_path)
    assert summary["test_accuracy"] > 0.5
    assert all(weight.dtype == torch.float32 for weight in final_weights(folder).values())


def test_a_filter_decides_what_is_trained_on(tmp_path):
    summary, _ = trained(small_run(filter={"name": "random", "drop": 0.5}, epochs=1), tmp_path)
    assert abs(summary["samples"] - 1437 / 2) < 10


def test_a_batch_that_changes_on_the_way(tmp_path):
    stages = [{"from_epoch": 0, "global_batch": 64, "lr": 0.01}, {"from_epoch": 1, "global_batch": 512, "lr": 0.05}]
    _, folder = trained(small_run(global_batch={"name": "steps", "stages": stages}), tmp_path)
    steps = [(row["global_batch"], row["lr"]) for row in folder.metrics() if "lr" in row]
    assert steps[:23] == [(64, 0.01)] * 22 + [(1437 - 22 * 64, 0.01)]
    assert steps[23:] == [(512, 0.05), (512, 0.05), (1437 - 1024, 0.05)]


def test_the_ratio_of_weights_and_gradients_is_recorded(tmp_path):
    _, folder = trained(small_run(model=NET, probes=[{"name": "ratio", "every_steps": 5}]), tmp_path)
    first = next(row["ratio"]["layers.1.weight"] for row in folder.metrics() if "ratio" in row)
    assert first["ratio"] == pytest.approx(first["weight"] / first["gradient"])


def test_a_checkpoint_of_another_run_is_refused_and_untouched(tmp_path):
    _, one = trained(small_run(), tmp_path)
    other = small_run(seed=1)
    shutil.copytree(one.checkpoints, tmp_path / other.folder_name / "checkpoint")
    with pytest.raises(Problem, match="belongs to another run"):
        train(other, runs_dir=tmp_path)
    assert len(list((tmp_path / other.folder_name / "checkpoint").iterdir())) == 2


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"global_batch": 4096}, "global_batch 4096 is larger than the 1437 training samples"),
        ({"model": "resnet", "model_": 0}, "has no option"),
        (
            {"model": NET, "micro_batch": 64, "batchnorm_group": 32},
            "micro_batch 64 differs from the BatchNorm group 32",
        ),
        ({"dataset": "cifar10"}, "cifar"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, monkeypatch, fields, sentence):
    monkeypatch.setenv("BIGBATCH_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Problem, match=sentence) as caught:
        train(small_run(**fields), runs_dir=tmp_path)
    assert "\n" not in str(caught.value)


LIMITED = """
import resource, signal, sys
from bigbatch.cli import main

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
main(sys.argv[2:])
"""


def test_a_full_disk_ends_the_run_in_one_sentence_and_it_goes_on_later(tmp_path, monkeypatch):
    """A limit on file size fails the writing of a larger checkpoint in its middle, as a full disk does."""
    monkeypatch.chdir(tmp_path)  # no repository here whose diff would make run.json large
    run = small_run(model={"name": "mlp", "hidden": [64]})
    path, folder = write_run(run, tmp_path), Folder(tmp_path / "runs" / run.folder_name)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, "18000", "train", str(path), "--quiet"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "the checkpoint of step 6 could not be written (" in done.stderr
    assert f"then 'bigbatch resume {Path('runs') / run.folder_name}'" in done.stderr
    assert folder.status == "failed"
    assert list(folder.checkpoints.iterdir()) == []
    bigbatch("resume", folder.path)
    assert folder.status == "done"


def test_an_image_folder_trains_with_worker_processes(tmp_path):
    for split, count in (("train", 12), ("val", 4)):
        for label, shade in (("dark", 40), ("light", 210)):
            (tmp_path / "images" / split / label).mkdir(parents=True)
            for number in range(count):
                picture = Image.new("RGB", (12, 10 + number % 3), (shade + number, shade, shade))
                picture.save(tmp_path / "images" / split / label / f"{number}.png")
    images = {"name": "imagefolder", "folder": str(tmp_path / "images"), "size": 8, "resize": 8, "workers": 2}
    run = small_run(dataset=images, global_batch=8, micro_batch=4, epochs=4, optimizer={"name": "momentum", "lr": 0.02})
    bigbatch("train", write_run(run, tmp_path), "--runs-dir", tmp_path / "with")
    with_workers = Folder(tmp_path / "with" / run.folder_name)
    assert with_workers.summary()["test_accuracy"] == 1.0
    alone = run.with_settings(["dataset.workers=0"])
    _, without = trained(alone, tmp_path / "without")
    assert same_bits(final_weights(with_workers), final_weights(without))


def test_targets_are_recorded_while_training_and_found_later(tmp_path):
    run = small_run(epochs=3)
    summary = train(run, runs_dir=tmp_path, targets=["test_accuracy=0.5"])
    reached = summary.crossings["test_accuracy=0.5"]
    rows = [row for row in Folder(tmp_path / run.folder_name).metrics() if "test_accuracy" in row]
    assert 0 < reached["samples"] <= next(row["samples"] for row in rows if row["test_accuracy"] >= 0.5)
    later = train(run, runs_dir=tmp_path, targets=["test_accuracy=1.0"])  # finished: nothing is trained
    assert later.crossings == {**summary.crossings, "test_accuracy=1": None}


def test_targets_on_the_command_line(tmp_path):
    path = write_run(small_run(epochs=1), tmp_path)
    for ranks in (1, 2):
        done = bigbatch("train", path, "--runs-dir", tmp_path, "--ranks", ranks, "--target", "test_accuracy=0.1")
        assert ranks == 2 or "test_accuracy=0.1 after" in done.stdout
    assert all(Folder(found.parent).summary().crossings for found in tmp_path.glob("*/summary.json"))
    wrong = bigbatch("train", path, "--target", "accuracy=0.1", expect=2)
    assert "there is no metric 'accuracy'" in wrong.stderr
