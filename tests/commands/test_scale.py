"""`bigbatch scale` as a user meets it."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import warnings

import pytest
from cyclopts import CycloptsError
from small import bigbatch

from bigbatch.cli import app
from bigbatch.errors import Notice, Problem
from bigbatch.scaling import report
from bigbatch.scaling.simulation import Simulation

LAYERS = "layer,backward_us,gradient_bytes\nforward,1000,\nc,500,800000\nb,700,400000\na,900,300000\nupdate,200,\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a table of layers in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text(LAYERS)
    return tmp_path


def scale(*arguments: object) -> int:
    return app(["scale", *map(str, arguments)], result_action="return_value")


def simulated(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> Simulation:
    """What the command found, without the time that pictures take."""
    shown: list[Simulation] = []
    monkeypatch.setattr(report, "print_simulation", shown.append)
    scale(*arguments)
    return shown[0]


def test_a_table_of_layers_needs_no_torch(here):
    code = (
        "import sys\nfrom bigbatch.cli import app\n"
        "app(['scale', 'simulate', 'mine.csv', '--to', '12'], result_action='return_value')\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "ddp (simulated)" in done.stdout
    assert "horovod (simulated)" in done.stdout


def test_simulate_writes_numbers_pictures_and_a_page(here, capsys):
    scale("simulate", "mine.csv", "--engines", "ddp,horovod", "--to", 96, "--points", 5, "--picture", 12, "--out", "o")
    assert "ranks" in capsys.readouterr().out
    with (here / "o" / "simulate.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = json.loads((here / "o" / "simulate.json").read_text())
    assert len(rows) == len(found["points"]) == 2 * 5
    assert found["machine"]["name"] == "summit"
    assert found["engines"]["ddp"]["bucket_mb"] == 25
    assert float(rows[0]["efficiency"]) == 1
    page = (here / "o" / "simulate.html").read_text()
    for text in (
        "nobody ran this", "One step of ddp on 12 ranks", "One step of horovod on 12 ranks", "What bends the curve",
        "What library versions change", "Yin et al. 2019", "It fails for", "communication", "backward",
    ):  # fmt: skip
        assert text in page, text
    names = {path.name for path in (here / "o").iterdir()}
    assert {"efficiency.png", "step_ddp.svg", "step_horovod.png", "step_horovod.csv"} <= names


def test_settings_reach_model_machine_and_engine(here, monkeypatch):
    arguments = ["simulate", "cnn", "--sample", "1,8,8", "--classes", 10, "--engine", "horovod", "--to", 2]
    settings = ["--set", "model.width=4", "--set", "machine.jitter.fraction=0", "--set", "horovod.cycle_ms=50"]
    found = simulated(monkeypatch, *arguments, *settings).to_json()
    assert found["engines"]["horovod"]["cycle_ms"] == 50
    assert found["machine"]["jitter"]["fraction"] == 0
    # 1·4·9 + 4, 4·8·9 + 8, 32·64... of width 4: 40 + 296 + (8·2·2·64 + 64) + 650
    assert found["gradient_bytes"] == 4 * (40 + 296 + 2112 + 650)


def test_a_machine_without_a_device_times_the_layers_here(here, capsys):
    scale("simulate", "mlp", "--machine", "here", "--sample", "1,8,8", "--classes", 10, "--to", 2, "--batch", 16)
    assert "timed here on one thread" in " ".join(capsys.readouterr().out.split())


def test_a_measured_speed_is_what_one_rank_does(here, monkeypatch):
    found = simulated(monkeypatch, "simulate", "mine.csv", "--to", 1, "--samples-per-second", 1000, "--batch", 64)
    assert found.profile.compute_us == pytest.approx(64_000)


def test_more_ranks_than_the_machine_has_are_said(here):
    with pytest.warns(Notice, match="machine 'summit' has 27,648 ranks"):
        scale("simulate", "mine.csv", "--to", 30_000, "--points", 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scale("simulate", "mine.csv", "--to", 27_648, "--points", 2)


def test_plan_answers_from_a_number_and_from_advice(here, capsys):
    (here / "advice.json").write_text(json.dumps({"noise_scale": 1000, "noise_scale_interval": [500, 2000]}))
    arguments = ["plan", "mine.csv", "--global-batch", 64, "--to", 96, "--points", 6, "--batch", 8]
    scale(*arguments, "--noise-scale", 1000)
    from_number = capsys.readouterr().out
    scale(*arguments, "--noise-scale", "advice.json", "--out", "o")
    from_advice = capsys.readouterr().out
    assert "finish first" in from_number
    assert "Simulated: nobody ran this" in from_number
    assert "over the noise scale's interval" in " ".join(from_advice.split())
    found = json.loads((here / "o" / "plan.json").read_text())
    assert found["noise_scale"] == 1000
    assert min(found["choices"], key=lambda one: one["time"])["batch_rule"] == "best"
    assert "Training time" in (here / "o" / "plan.html").read_text()
    assert {"plan.csv", "training_time.png", "training_time.csv"} <= {path.name for path in (here / "o").iterdir()}


def test_published_writes_its_command_commit_and_date(here, capsys):
    scale("published", "--out", "o")
    text = (here / "o" / "published.html").read_text()
    assert "simulated, not run" in text
    assert "commit " in text
    assert '<td>ResNet-50, Summit</td><td class="number">6,144</td><td>87.0%</td>' in text


def test_a_machine_is_printed_as_a_start_for_ones_own(here, capsys):
    scale("machine", "summit")
    (here / "mine.json").write_text(capsys.readouterr().out.replace('"summit"', '"mine"'))
    scale("simulate", "mine.csv", "--machine", "mine.json", "--to", 6)
    assert "machine mine" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["simulate", "mine.csv", "--engines", "dpd"], "no engine called 'dpd'; did you mean 'ddp'?"),
        (["simulate", "mine.csv", "--engines", ","], "no engine was named"),
        (["simulate", "mine.csv", "--machine", "sumit"], "did you mean 'summit'?"),
        (["simulate", "mine.csv", "--set", "machine.nodes=0"], "nodes should be greater than 0; got 0"),
        (["simulate", "mine.csv", "--set", "horovod.cycle_ms=0"], "cycle_ms should be greater than 0"),
        (
            ["simulate", "mine.csv", "--set", "ddp.bukket_mb=1"],
            "has no option 'bukket_mb'; did you mean 'bucket_mb'?",
        ),
        (["simulate", "mine.csv", "--set", "dpd.bucket_mb=1"], "is for 'dpd'; did you mean 'ddp'?"),
        (["simulate", "mine.csv", "--set", "cycle_ms=1"], "is not a setting: write OWNER.NAME=VALUE"),
        (["simulate", "resnte"], "no model called 'resnte'; did you mean 'resnet'?"),
        (["simulate", "none.csv"], "cannot be read as a table of layers"),
        (["simulate", "resnet", "--sample", "large"], "--sample large is not a shape"),
        (["simulate", "resnet", "--sample", "3,0,8"], "is empty: use numbers from 1 on"),
        (["simulate", "resnet", "--sample", "3,8,8"], "needs images of at least 17 x 17 pixels"),
        (["simulate", "vgg16", "--set", "model.depth=3"], "is a fixed table and has no option 'depth'"),
        (["simulate", "vgg16", "--machine", "here", "--to", "2"], "cannot be timed"),
        (["plan", "mine.csv", "--global-batch", "8", "--noise-scale", "x"], "neither a number nor advice"),
    ],
)
def test_wrong_input_is_one_sentence_and_writes_nothing(arguments, sentence, here):
    with pytest.raises(Problem) as caught:
        scale(*arguments, "--out", "o")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (here / "o").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["simulate", "mine.csv", "--to", "0"], 'Invalid value "0" for --to. Must be >= 1.'),
        (["simulate", "mine.csv", "--to", "-6"], 'Invalid value "-6" for --to. Must be >= 1.'),
        (["simulate", "mine.csv", "--points", "0"], "for --points. Must be >= 1."),
        (["simulate", "mine.csv", "--picture", "0"], "for --picture. Must be >= 1."),
        (["simulate", "mine.csv", "--batch", "0"], "for --batch. Must be >= 1."),
        (["simulate", "mine.csv", "--samples-per-second", "0"], "for --samples-per-second. Must be > 0."),
        (["simulate", "mine.csv", "--samples-per-second", "inf"], "for --samples-per-second. Must be < inf."),
        (["plan", "mine.csv", "--global-batch", "0", "--noise-scale", "5"], "for --global-batch. Must be >= 1."),
        (["measure", "mlp", "--rounds", "0"], "for --rounds. Must be >= 1."),
        (["measure", "mlp", "--steps", "0"], "for --steps. Must be >= 1."),
        (["measure", "mlp", "--batch", "0"], "for --batch. Must be >= 1."),
        (["trace", "mlp", "--ranks", "0"], "for --ranks. Must be >= 1."),
        (["trace", "mlp", "--steps", "101"], "for --steps. Must be <= 100."),
    ],
)
def test_a_number_out_of_range_is_named_with_its_option(arguments, sentence, here):
    with pytest.raises(CycloptsError, match=re.escape(sentence)):
        app(["scale", *arguments, "--out", "o"], exit_on_error=False, print_error=False)
    assert not (here / "o").exists()


def test_engine_is_another_name_of_engines(here, monkeypatch):
    found = simulated(monkeypatch, "simulate", "mine.csv", "--engine", "ddp", "--engines", "horovod", "--to", 2)
    assert list(found.curves) == ["ddp", "horovod"]


def test_wrong_input_ends_in_a_code(here):
    done = bigbatch("scale", "simulate", "mine.csv", "--to", 0, expect=2)
    assert "for --to. Must be >= 1." in done.stderr
