"""`bigbatch probe`: recipes and run folders, options of probes, tables and files."""

from __future__ import annotations

import json
import re

import pytest
from small import small_run

from bigbatch.commands.probe import command
from bigbatch.errors import Problem
from bigbatch.probes.measurement.record import to_json
from bigbatch.probing import probe_run
from bigbatch.training.loop import train


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"names": ["lipshitz"]}, "no probe called 'lipshitz'; did you mean 'lipschitz'?"),
        ({"names": [""]}, "no probe was named: use --probe with some of curvature, gradient"),
        ({"names": ["ratio"], "options": ["gradient.draws=2"]}, "add --probe gradient, or leave it out"),
        ({"names": ["ratio"], "options": ["draws"]}, "write PROBE.NAME=VALUE"),
        ({"names": ["gradient"], "options": ["gradient.batches=[32, 4096]"]}, "cannot draw a batch of 4096 from 1437"),
        ({"names": ["gradient"], "options": ["gradient.layer=haed"]}, "did you mean 'head"),
        (
            {"names": ["landscape"], "options": ["landscape.progress=/nowhere/slice"]},
            "/nowhere/slice.rank0 could not be written (No such file or directory): give another file",
        ),
    ],
)
def test_bad_input_gets_one_sentence(arguments, sentence):
    with pytest.raises(Problem, match=re.escape(sentence)):
        probe_run("digits", settings=["model=mlp", "global_batch=64"], **arguments)


def test_the_command_prints_tables_and_writes_json(tmp_path, capsys):
    out = tmp_path / "found.json"
    asked = {"settings": ["model=mlp", "global_batch=64"]}
    command("digits", probes=["ratio,gradient"], out=out, **asked)
    assert json.loads(out.read_text()) == to_json(probe_run("digits", names=["ratio,gradient"], **asked))
    assert json.loads(out.read_text())["probes"]["gradient"]["layer"] == "layers.0.weight"
    printed = capsys.readouterr().out
    assert "gradient: by_batch" in printed
    assert "1408" in printed
    (tmp_path / "file").touch()
    with pytest.raises(Problem, match=r"found\.json could not be written"):
        command("digits", probes=["ratio"], out=tmp_path / "file" / "found.json", quiet=True, **asked)
    assert capsys.readouterr().out == ""


def test_settings_of_a_run_cannot_be_changed(tmp_path):
    run = small_run(epochs=1)
    train(run, runs_dir=tmp_path)
    with pytest.raises(Problem, match="leave --set out"):
        probe_run(str(tmp_path / run.folder_name), settings=["epochs=1"])


def test_a_landscape_of_a_recipe_goes_on_where_it_was_interrupted(tmp_path):
    options = ["landscape.points=3", "landscape.samples=16", f"landscape.progress={tmp_path / 'slice'}"]
    asked = {"names": ["landscape"], "settings": ["model=mlp"], "options": options}
    first = probe_run("digits", **asked)["probes"]["landscape"]
    file = tmp_path / "slice.rank0"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    again = probe_run("digits", **asked)["probes"]["landscape"]
    assert (first["reused"], again["reused"]) == (0, 2)
    assert first["losses"] == again["losses"]
    with pytest.raises(Problem, match="leave 'progress' out of a training"):
        train(small_run(probes=[{"name": "landscape", "progress": str(tmp_path / "slice")}]), runs_dir=tmp_path)
