"""`bigbatch schedule`: a table and a plot before anything is trained."""

from __future__ import annotations

import pytest
from small import small_run, write_run

from bigbatch.cli import main


def schedule(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["schedule", *map(str, arguments)])
    return ended.value.code


def test_the_table_has_lr_and_global_batch_and_the_plot_is_written(tmp_path, capsys):
    run = write_run(small_run(), tmp_path)
    assert schedule(run, "--points", 2, "--plot", tmp_path / "plan.svg") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "2 epochs" in lines[0]
    assert lines[1].split() == ["epoch", "lr", "global", "batch"]
    assert [line.split()[0] for line in lines[2:4]] == ["0.50", "1.50"]
    assert "global batch" in (tmp_path / "plan.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--points", "0"], "Must be >= 1"),
        (["--set", "epochs=null", "--set", "steps=3"], "a budget of 3 steps"),
        (["--plot", "plan.txt"], "plan.txt is not an image file: name a file that ends in .png, .svg or .pdf"),
    ],
)
def test_wrong_input_is_one_sentence(tmp_path, monkeypatch, capsys, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    assert schedule(write_run(small_run(), tmp_path), *arguments) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "plan.txt").exists()


def test_what_scales_with_the_batch_is_shown_with_its_reason(capsys):
    scaled = ("--set", "scale_batch=64", "--points", 1)
    assert schedule("legw_mnist", "--set", "schedule=constant", *scaled) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[:3] == ["scaled before after why", "global_batch 128 8192 64 times", "optimizer.lr 0.1 0.8 √k times"]
    assert schedule("legw_mnist", *scaled) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[2:4] == ["lr at the peak 0.1 0.8 schedule 'legw'", "warm-up epochs 0.1 6.4 schedule 'legw'"]
    assert schedule("legw_mnist", "--set", "scaling_rule=linear", *scaled) == 2
    assert "multiplies the learning rate by 8" in " ".join(capsys.readouterr().err.split())
