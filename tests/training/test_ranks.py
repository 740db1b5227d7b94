"""Two real ranks under torchrun: the same training as one process, killed and stopped and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import torch
from small import bigbatch, final_weights, same_bits, small_run, write_run

from bigbatch.artifacts.folder import Folder
from bigbatch.training.loop import train

NET = {"name": "outside:Net", "dropout": 0.0}  # BatchNorm; dropout's masks depend on the micro-batch


def on_two_ranks(run, tmp_path, *arguments, expect=0):
    done = bigbatch(
        "train", write_run(run, tmp_path), "--ranks", 2, "--runs-dir", tmp_path / "ranks", *arguments, expect=expect
    )
    return done, Folder(tmp_path / "ranks" / run.with_settings(["engine=ddp"]).folder_name)


def test_two_ranks_clip_average_and_perturb_as_one_process_does(tmp_path):
    run = small_run(model=NET, dtype="float64", clip_norm=0.5, sam_radius=0.05, ema_decay=0.9)
    _, ranks = on_two_ranks(run, tmp_path)
    train(run, runs_dir=tmp_path)
    a, b = final_weights(ranks), final_weights(tmp_path / run.folder_name)
    assert all(torch.allclose(a[name].double(), b[name].double(), atol=1e-10) for name in a)
    summaries = [ranks.summary(), Folder(tmp_path / run.folder_name).summary()]
    assert summaries[0]["test_loss_ema"] == pytest.approx(summaries[1]["test_loss_ema"], abs=1e-10)


def test_two_ranks_train_the_same_network_as_one_process(tmp_path):
    run = small_run(model=NET, dtype="float64", micro_batch=64)  # the last batch of an epoch has 157 samples
    _, ranks = on_two_ranks(run, tmp_path)
    train(run, runs_dir=tmp_path)
    alone = Folder(tmp_path / run.folder_name)
    a, b = final_weights(ranks), final_weights(alone)
    assert a.keys() == b.keys()
    assert all(torch.allclose(a[name].double(), b[name].double(), atol=1e-10) for name in a)
    assert ranks.summary()["ranks"] == 2
    assert ranks.summary()["test_accuracy"] == alone.summary()["test_accuracy"]
    losses = [[row["train_loss"] for row in folder.metrics() if "lr" in row] for folder in (ranks, alone)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-10)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_is_restarted_and_changes_nothing_in_the_end(tmp_path, rank):
    optimizer = {"name": "outside:DyingSGD", "lr": 0.05, "marker": str(tmp_path / "died"), "at_step": 10, "rank": rank}
    run = small_run(model=NET, optimizer=optimizer)
    _, folder = on_two_ranks(run, tmp_path)
    assert (tmp_path / "died").exists()
    assert folder.status == "done"
    folder.path.rename(tmp_path / "killed")
    _, whole = on_two_ranks(run, tmp_path)  # the marker is there: this one does not die
    assert same_bits(final_weights(tmp_path / "killed"), final_weights(whole))


def test_ctrl_c_stops_all_ranks_and_one_process_goes_on_with_the_same_samples(tmp_path):
    optimizer = {"name": "outside:DyingSGD", "lr": 0.05, "marker": str(tmp_path / "died"), "at_step": 8}
    run = small_run(dtype="float64", optimizer=optimizer | {"signal_number": int(signal.SIGINT)})
    done, folder = on_two_ranks(run, tmp_path, expect=75)
    assert folder.status == "stopped"
    assert done.stderr.count("continues it") == 1
    assert "Traceback" not in done.stderr
    bigbatch("resume", folder.path)
    assert folder.status == "done"
    train(run, runs_dir=tmp_path)
    a, b = final_weights(folder), final_weights(tmp_path / run.folder_name)
    assert all(torch.allclose(a[name], b[name], atol=1e-10) for name in a)


def test_a_run_that_diverges_says_so_once(tmp_path):
    run = small_run(optimizer={"name": "outside:ExplodingSGD", "lr": 0.05})
    done, folder = on_two_ranks(run, tmp_path, expect=3)
    assert done.stdout.count("diverged, the loss was not finite at step 4") == 1
    assert "Traceback" not in done.stderr
    assert folder.status == "diverged"


def test_the_launcher_passes_a_signal_on(tmp_path):
    run = small_run(epochs=10_000)
    command = [sys.executable, "-m", "bigbatch", "train", str(write_run(run, tmp_path)), "--ranks", "2"]
    with subprocess.Popen([*command, "--runs-dir", str(tmp_path)], stderr=subprocess.PIPE, text=True) as launcher:
        for line in launcher.stderr:
            if "test accuracy" in line:  # it trains
                break
        os.kill(launcher.pid, signal.SIGINT)
        rest = launcher.stderr.read()
        assert launcher.wait(timeout=60) == 75, rest
    assert "Traceback" not in rest
    assert Folder(tmp_path / run.with_settings(["engine=ddp"]).folder_name).status == "stopped"


@pytest.mark.parametrize(
    ("fields", "sentence", "status"),
    [
        (
            {"global_batch": 255},
            "global_batch 255 does not divide over 2 ranks: use --ranks 1, or a run with global_batch 254",
            None,  # before any work
        ),
        (
            {"model": NET, "global_batch": 128, "micro_batch": 128},
            "leaves a rank of 2 without work: use --set batchnorm_group=64",
            "failed",
        ),
    ],
)
def test_bad_input_on_two_ranks_is_said_once_without_a_traceback(tmp_path, fields, sentence, status):
    done, folder = on_two_ranks(small_run(**fields), tmp_path, expect=2)
    assert done.stderr.count(sentence) == 1
    assert "Traceback" not in done.stderr
    assert folder.status == status


def test_fresh_does_not_touch_a_folder_that_is_being_trained(tmp_path):
    run = small_run()
    folder = Folder(tmp_path / "ranks" / run.with_settings(["engine=ddp"]).folder_name)
    with folder.lock():
        folder.create(run.with_settings(["engine=ddp"]))
        before = folder.path.stat().st_mtime_ns  # a file that is moved away and back would change it
        done, _ = on_two_ranks(run, tmp_path, "--fresh", expect=2)
        assert folder.path.stat().st_mtime_ns == before
    assert f"is being trained by process {os.getpid()}" in done.stderr


def test_torchrun_started_by_hand_works_the_same(tmp_path):
    run = small_run(epochs=1)
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
        *("-m", "bigbatch", "train", str(write_run(run, tmp_path)), "--runs-dir", str(tmp_path)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test accuracy") == 1
    assert Folder(tmp_path / run.with_settings(["engine=ddp"]).folder_name).summary()["ranks"] == 2
