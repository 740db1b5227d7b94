"""`bigbatch sweep` as it is typed, and workers that submitit starts."""

from __future__ import annotations

import json

import pytest
from small import bigbatch, write_run
from sweep_parts import table, tiny_run

from bigbatch.cli import main
from bigbatch.sweeps import Sweep, WorkerOptions
from bigbatch.sweeps.cluster import submit


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_run(tiny_run(), tmp_path_factory.mktemp("recipe"))


def said(capsys, *arguments):
    """What a command prints and ends in, in this process."""
    with pytest.raises(SystemExit) as ending:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return ending.value.code, printed.out, printed.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--grid", "global_bath=1,2"], "a run has no option 'global_bath'; did you mean 'global_batch'"),
        (["--grid", "global_batch="], "has no values"),
        (["--grid", "optimizer.lr=0.1,fast"], "optimizer.lr=fast: optimizer 'sgd': lr should be a valid number"),
        (["--grid", "global_batch=8,...,800"], "global_batch 128 is larger than the 72 training samples"),
        (["--variants", "nothing.json"], "--variants nothing.json cannot be read"),
        (["--storage", "sqlite://"], "--storage is where --search keeps its trials"),
        (["--search", "optimizer.lr=0.1..1", "--seeds", "3"], "a search trains every trial once"),
        (["--target", "test_accuracy=98"], "an accuracy is a fraction above 0 and up to 1"),
        (["--search", "optimizer.lr=1..1"], "does not go from a number to a larger one"),
    ],
)
def test_wrong_input_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch, capsys, recipe, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    code, _, error = said(capsys, "sweep", recipe, *arguments)
    assert code == 2
    assert sentence in error
    assert len(error.strip().splitlines()) == 1
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--seeds", "0"], 'Invalid value "0" for --seeds. Must be >= 1'),
        (["--jobs", "0", "--plan"], 'Invalid value "0" for --jobs. Must be >= 1'),
        (["--search", "optimizer.lr=0.1..1", "--trials", "0"], 'Invalid value "0" for --trials. Must be >= 1'),
        (["--search", "optimizer.lr=0.1..1", "--held-out", "2"], 'Invalid value "2.0" for --held-out. Must be < 1'),
    ],
)
def test_numbers_out_of_range_are_refused(tmp_path, monkeypatch, capsys, recipe, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    code, _, error = said(capsys, "sweep", recipe, *arguments)
    assert (code, sentence in error) == (2, True)
    assert not any(tmp_path.iterdir())


def test_a_sweep_is_planned_run_grown_and_shown(tmp_path, monkeypatch, capsys, recipe):
    monkeypatch.chdir(tmp_path)
    code, text, _ = said(capsys, "sweep", recipe, "--grid", "global_batch=6,12,24", "--seeds", 2, "--plan")
    assert code == 0
    assert "6 runs, 6 left: about" in text
    assert not any(tmp_path.iterdir())

    done = bigbatch("sweep", recipe, "--grid", "global_batch=6,12,24", "--jobs", 2)
    assert "no interval at the baseline batch 6 (n=1)" in done.stdout
    assert done.stderr.count("starts: ") == done.stderr.count("ends: ") == 3
    assert len(table((tmp_path / "sweeps" / "tiny" / "table.csv").read_text())) == 3
    asked = json.loads((tmp_path / "sweeps" / "tiny" / "sweep.json").read_text())
    assert asked["command"][:2] == ["bigbatch", "sweep"]

    code, text, _ = said(capsys, "sweep", "sweeps/tiny", "--seeds", 2, "--plan")
    assert "6 runs, 3 left: about" in text
    code, text, _ = said(capsys, "sweep", "sweeps/tiny", "--table")
    assert code == 0
    assert text.count(" % (n=1) ") == 3
    code, text, _ = said(
        capsys, "sweep", "sweeps/tiny", "--table", "--target", "test_loss=1.2", "--target", "test_loss=0.01"
    )
    assert "samples to test_loss=1.2" in text
    assert text.count("0 of 1") == 3
    assert "0 batches reached the target with all their runs, a fit needs 3" in text
    counted = table((tmp_path / "sweeps" / "tiny" / "table.csv").read_text())
    assert all(row["samples to test_loss=0.01"] == "" for row in counted)
    crossings = json.loads((Sweep.open("sweeps/tiny").run_results()[0].folder / "summary.json").read_text())[
        "crossings"
    ]
    assert float(counted[0]["samples to test_loss=1.2"]) == crossings["test_loss=1.2"]["samples"]
    first, second, _ = Sweep.open("sweeps/tiny").run_results()
    (first.folder / "summary.json").unlink()
    (second.folder / "summary.json").write_text('{"test_accuracy": "high"}')
    code, text, _ = said(capsys, "sweep", "sweeps/tiny", "--table")
    assert (code, text.count(" % (n=1) "), text.count(" is left out: ")) == (0, 1, 2)
    damaged = table((tmp_path / "sweeps" / "tiny" / "table.csv").read_text())
    assert [row["status"] for row in damaged] == ["damaged", "damaged", "done"]
    assert "has no summary.json" in damaged[0]["problem"]
    assert "has no test_accuracy: restore it from a copy, or remove the run's folder" in damaged[1]["problem"]
    code, _, error = said(capsys, "sweep", "sweeps/tiny", "--grid", "global_batch=6")
    assert (code, "is a sweep with its own settings" in error) == (2, True)
    (tmp_path / "empty").mkdir()
    code, _, error = said(capsys, "sweep", "empty")
    assert (code, "is not a sweep, it has no sweep.json" in error) == (2, True)


def test_submitted_workers_divide_a_sweep(tmp_path):
    """With submitit's local executor, which starts jobs as SLURM would, in processes of their own."""
    sweep = Sweep.create(tiny_run(), tmp_path, grids={"global_batch": (6, 12, 24)})
    jobs = submit(sweep, "local", WorkerOptions(), ["timeout_min=5"])
    assert [job.result() for job in jobs] == ["done"]
    assert [row.status for row in sweep.run_results()] == ["done"] * 3
    assert len(table((tmp_path / "table.csv").read_text())) == 3


def test_no_cluster_here(tmp_path, capsys, recipe, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    code, _, error = said(capsys, "sweep", recipe, "--launcher", "slurm")
    assert (code, "finds no cluster here" in error) == (2, True)
    code, _, error = said(capsys, "sweep", recipe, "--launcher", "local", "--slurm", "gpu")
    assert (code, "write FIELD=VALUE" in error) == (2, True)
