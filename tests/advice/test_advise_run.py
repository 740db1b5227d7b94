"""`bigbatch advise` for real: recipes, run folders, text; what it writes, prints and refuses."""

from __future__ import annotations

import json
import sys
import warnings

import pytest
import torch
from small import bigbatch, small_run, write_run

from bigbatch.advice import advise_run
from bigbatch.artifacts.folder import Folder
from bigbatch.cli import main
from bigbatch.errors import Problem
from bigbatch.probing import load_recipe_or_folder
from bigbatch.run import Run
from bigbatch.training.loop import train

PROBES = [{"name": name, "every_steps": 2} for name in ("noise_scale", "stride", "lipschitz")]
QUICK = {"seconds": 3.0, "batches": [16, 64, 256]}


def test_the_command_answers_as_json_and_writes_the_page(tmp_path):
    done = bigbatch(
        *("advise", "digits", "--json", "--seconds", 4, "--steps", 60, "--out", tmp_path / "out"),
        *("--batches", "8,16,64,256,1024", "--set", "model=mlp"),
    )
    found = json.loads(done.stdout)
    assert {"batch", "interval", "grade", "noise_scale", "memory_cap", "schedule"} <= found.keys()
    assert found["of"] == "digits"
    assert found["now"] == 16
    assert found["about"]["steps"] == 60
    assert json.loads((tmp_path / "out" / "advise.json").read_text()) == found
    assert "digits" in (tmp_path / "out" / "advise.html").read_text()
    assert "measuring the noise scale after 60 steps" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["digist"], "no recipe called 'digist'; did you mean 'digits'?"),
        (["digits", "--batches", "32,many"], "--batches 32,many is not a list of numbers"),
        (["digits", "--batches", "32,64,5000"], "a batch of 5000 is larger than the 1437 samples"),
    ],
)
def test_bad_input_ends_in_one_sentence_and_writes_nothing(arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # the command line changes both
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with pytest.raises(SystemExit) as ending:
        main(["advise", *arguments])
    assert ending.value.code == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two runs that differ in their batch, with records of their probes."""
    runs_dir = tmp_path_factory.mktemp("runs")
    torch.set_num_threads(1)
    folders = []
    for batch in (128, 512):
        run = small_run(global_batch=batch, probes=PROBES, epochs=6)
        train(run, runs_dir=runs_dir)
        folders.append(Folder(runs_dir / run.folder_name))
    return folders


def test_a_run_is_measured_at_its_checkpoint_beside_its_own_records_and_only_read(finished, tmp_path):
    folder = finished[0]
    before = {path: path.read_bytes() for path in folder.path.parent.rglob("*") if path.is_file()}
    run, found = load_recipe_or_folder(str(folder.path), [])
    advice = advise_run(run, found, **QUICK)
    assert {path: path.read_bytes() for path in folder.path.parent.rglob("*") if path.is_file()} == before
    assert (advice.about["steps"], advice.about["steps_trained_here"]) == (72, 0)
    assert advice.now == 128
    rows = [row for row in folder.metrics() if "noise_scale" in row and "problem" not in row["noise_scale"]]
    recorded = advice.over_training[:-1]  # the last one is measured here
    assert [row["estimate"] for row in recorded] == [row["noise_scale"]["whole"] for row in rows]
    assert len(advice.strides) == len(advice.lipschitz) == 36 + 1
    assert [(row["global_batch"], row["run"]) for row in advice.lipschitz_peaks] == [
        (128, str(finished[0].path)),
        (512, str(finished[1].path)),
    ]
    assert any("the end of the training" in warning for warning in advice.warnings)
    text = advice.write(tmp_path).read_text(encoding="utf-8")
    assert "peaked at step" in text


def test_a_recipe_with_a_warm_up_is_trained_beyond_it(tmp_path):
    warm = {"name": "legw", "baseline_batch": 64, "warmup_epochs": 1.0, "decay": {"kind": "constant"}}
    advice = advise_run(small_run(global_batch=64, schedule=warm, epochs=20), steps=40, **QUICK)
    assert advice.about["warmup_epochs"] == 1.0
    assert advice.about["epochs"] > 1.0
    assert advice.schedule["legw"]["warmup_epochs"] == pytest.approx(advice.batch / 64)
    lrs = [row["lr"] for row in advice.strides]
    assert lrs[0] < 0.01  # of 0.1
    assert lrs[-1] == pytest.approx(0.1)


def test_a_warm_up_that_is_cut_short_is_said():
    warm = {"name": "legw", "baseline_batch": 64, "warmup_epochs": 4.0, "decay": {"kind": "constant"}}
    advice = advise_run(small_run(global_batch=64, schedule=warm, epochs=20), steps=5, **QUICK)
    assert advice.grade == "low"
    assert any("the warm-up was not over" in reason for reason in advice.reasons)
    assert any("give more --seconds or --steps" in warning for warning in advice.warnings)


def test_batchnorm_keeps_its_groups():
    model = {"name": "outside:Net", "dropout": 0.2}
    advice = advise_run(
        small_run(model=model, global_batch=64, micro_batch="auto", batchnorm_group=32), steps=5, **QUICK
    )
    assert advice.about["batchnorm"] == "groups of 32"
    assert advice.over_training[-1].micro_batch == 32
    assert advice.memory["limits"] == "a micro-batch"


def text_run(tmp_path) -> Run:
    data = tmp_path / "data" / "ptb"
    data.mkdir(parents=True)
    words = " ".join(f"w{i % 7} w{i * i % 5}" for i in range(600))
    for part in ("train", "valid", "test"):
        (data / f"ptb.{part}.txt").write_text(f" {words} \n" * 3)
    return small_run(
        dataset={"name": "ptb", "steps": 5, "official": False},
        model={"name": "lstm_words", "embedding": 8, "hidden": 8, "layers": 1},
        global_batch=8,
        micro_batch=4,
        epochs=3,
    )


def test_text_is_advised_too(tmp_path):
    run = text_run(tmp_path)
    advice = advise_run(run, data_dir=tmp_path / "data", seconds=3.0, steps=10, batches=[4, 8, 32], verify=True)
    assert advice.noise_scale > 0
    assert any("text is measured in single windows" in warning for warning in advice.warnings)
    assert advice.verified["verdict"] in ("worse", "better", "no significant difference")


def test_a_recipe_whose_batch_is_more_than_its_data_is_told():
    with pytest.raises(Problem, match="global_batch 5000 is larger than the 1437 training samples"):
        advise_run(small_run(global_batch=5000))


def test_the_run_json_of_a_run_is_a_recipe(tmp_path):
    path = write_run(small_run(), tmp_path)
    run, folder = load_recipe_or_folder(str(path), ["global_batch=32"])
    assert folder is None
    assert run.global_batch.global_batch == 32


def test_an_answer_is_given_even_where_it_cannot_be_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    (tmp_path / "file").touch()
    path = write_run(small_run(), tmp_path)
    with pytest.raises(SystemExit) as ending:
        main(
            ["advise", str(path), "--steps", "3", "--seconds", "2", "--out", str(tmp_path / "file" / "out"), "--quiet"]
        )
    found = capsys.readouterr()
    assert ending.value.code == 2
    assert "grade" in found.out
    assert "could not be written" in found.err
