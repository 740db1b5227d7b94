"""Input that used to train to a wrong result, or to end in the wrong sentence, is refused before any work."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small import bigbatch, small_run

from bigbatch import datasets, parts
from bigbatch.artifacts.folder import Folder
from bigbatch.datasets.arrays import ArraySamples
from bigbatch.errors import Problem
from bigbatch.training import assembly
from bigbatch.training.loop import TrainOptions, train


@pytest.mark.parametrize(("label", "sentence"), [(-100, "labels from -100 to 9"), (10, "labels from 0 to 10")])
def test_labels_that_no_class_has(tmp_path, monkeypatch, label, sentence):
    """A label of -100 is torch's word for a sample to ignore: such a run trained to a loss of 0."""
    digits = datasets.load(parts.configure("datasets", "digits"))
    labels = digits.train.labels.clone()
    labels[0] = label
    wrong = replace(digits, train=ArraySamples(labels, None))
    monkeypatch.setattr(assembly.datasets, "load", lambda config, data_dir: wrong)
    with pytest.raises(Problem, match=f"{sentence}, but its 10 classes are numbered from 0 to 9: fix the labels"):
        train(small_run(), runs_dir=tmp_path)


@pytest.mark.parametrize("change", [{"sample_shape": (1, 0, 0)}, {"test": ArraySamples(torch.zeros(0).long(), None)}])
def test_data_without_samples_or_pixels(tmp_path, monkeypatch, change):
    digits = datasets.load(parts.configure("datasets", "digits"))
    monkeypatch.setattr(assembly.datasets, "load", lambda config, data_dir: replace(digits, **change))
    with pytest.raises(Problem, match=r"has 1437 training and \d+ test samples of shape .*: give it data to train"):
        train(small_run(), runs_dir=tmp_path)


def picture_folder(root: Path) -> None:
    from PIL import Image

    for split in ("train", "val"):
        for name in ("a", "b"):
            (root / split / name).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(root / split / name / "x.png")


def test_pictures_that_are_not_there(tmp_path):
    picture_folder(tmp_path)
    config = parts.configure("datasets", {"name": "imagefolder", "folder": str(tmp_path)})
    os.rename(tmp_path / "train" / "a" / "x.png", os.fsencode(tmp_path / "train" / "a") + b"/\xff.png")
    assert len(datasets.load(config).train) == 2  # a name that is not UTF-8 is a name
    (tmp_path / "train" / "b" / "y.png").symlink_to("/nowhere.png")
    with pytest.raises(Problem, match=r"train/b/y\.png cannot be read \(No such file .*\): replace or remove it"):
        datasets.load(config)
    (tmp_path / "train" / "c").mkdir()
    with pytest.raises(Problem, match=r"train/c has no images .*: add some or remove the class"):
        datasets.load(config)


def test_a_learning_rate_beyond_all_numbers():
    with pytest.raises(Problem, match=r"optimizer\.lr is 1e\+300, which no weight survives: use a smaller one"):
        small_run().with_settings(["optimizer.lr=1e300"])


@pytest.mark.parametrize("minutes", [float("nan"), -1.0])
def test_minutes_that_are_none(minutes):
    with pytest.raises(Problem, match=r"--checkpoint-minutes is .*: give the minutes between checkpoints"):
        TrainOptions(checkpoint_minutes=minutes)


def test_a_file_in_the_place_of_the_runs(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(Problem, match=r"is not writable \(.*\): choose another --runs-dir"):
        train(small_run(), runs_dir=tmp_path / "runs")


def test_ranks_that_do_not_divide_the_batch_of_a_stopped_run(tmp_path):
    folder = Folder(tmp_path / small_run().folder_name)
    folder.create(small_run())
    folder.status = "stopped"
    done = bigbatch("resume", folder.path, "--ranks", "3", expect=2)
    assert "global_batch 256 does not divide over 3 ranks: use --ranks 2, or a run with global_batch 255" in done.stderr
    assert folder.status == "stopped"


def test_a_recipe_that_is_none():
    from bigbatch.recipes import load_run

    with pytest.raises(Problem, match="recipe 'os:getcwd' returned a str, not a Run: name a function that does"):
        load_run("os:getcwd")
