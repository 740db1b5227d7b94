"""What holds for every probe, found by looking at the folder."""

from __future__ import annotations

import importlib
import inspect
import json

import pytest
import torch
from small import bigbatch, final_weights, same_bits, small_run, write_run

from bigbatch import parts, probes
from bigbatch.artifacts.folder import Folder
from bigbatch.commands.probe import command
from bigbatch.errors import Problem
from bigbatch.training.loop import train

NAMES = parts.names("probes")
NET = {"name": "outside:Net", "dropout": 0.2}
# small enough that all of them take a second together
SMALL = {
    "curvature": {"samples": 32, "coordinates": 3},
    "gradient": {"population": 128, "discard_batch": 64},
    "landscape": {"samples": 32, "points": 5},
    "lipschitz": {"samples": 16},
    "sharpness": {"samples": 32, "most_products": 5, "trace_products": 2},
    "stride": {"full_samples": 64},
}
ALL = [{"name": name, "every_steps": 3, **SMALL.get(name, {})} for name in NAMES]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """The same training without probes and with all of them."""
    runs_dir = tmp_path_factory.mktemp("runs")
    torch.set_num_threads(1)
    without, probed = small_run(model=NET), small_run(model=NET, probes=ALL)
    for run in (without, probed):
        train(run, runs_dir=runs_dir)
    return Folder(runs_dir / without.folder_name), Folder(runs_dir / probed.folder_name)


def test_all_probes_together_leave_the_training_as_it_was_to_the_bit(one_process):
    without, probed = one_process
    assert same_bits(final_weights(without), final_weights(probed))
    keys = ("step", "train_loss", "lr")
    losses = [[[row[key] for key in keys] for row in folder.metrics() if "lr" in row] for folder in one_process]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_probe_answers_when_it_is_due_in_plain_json(one_process, name):
    rows = [row for row in one_process[1].metrics() if name in row]
    assert [row["step"] for row in rows] == [1, 4, 7, 10]
    for row in rows:
        assert "problem" not in row[name]
        assert "NaN" not in json.dumps(row[name])
        assert "Infinity" not in json.dumps(row[name])


def test_two_ranks_end_as_without_probes_to_the_bit_and_measure_what_one_process_measures(tmp_path):
    found = []
    for asked in ([], ALL):
        run = small_run(model=NET, dtype="float64", epochs=1, probes=asked)
        bigbatch("train", write_run(run, tmp_path), "--ranks", 2, "--runs-dir", tmp_path)
        found.append(Folder(tmp_path / run.with_settings(["engine=ddp"]).folder_name))
    assert same_bits(*map(final_weights, found))
    alone = small_run(model=NET, dtype="float64", epochs=1, probes=ALL)
    train(alone, runs_dir=tmp_path)
    first, other = found[1].metrics()[0], Folder(tmp_path / alone.folder_name).metrics()[0]
    assert [name for name in NAMES if not near(first[name], other[name])] == []


def near(a, b):
    """Equal but for rounding; products and residuals count rounding itself."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(near(a[key], b[key]) for key in a if key not in ("residuals", "products"))
    if isinstance(a, list):
        return len(a) == len(b) and all(map(near, a, b))
    return a == pytest.approx(b, rel=1e-6, abs=1e-9) if isinstance(a, float) else a == b


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_asked_at_its_checkpoint_and_only_read(one_process, name, tmp_path, capsys):
    folder = one_process[0]
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    options = [f"{name}.{key}={json.dumps(value)}" for key, value in SMALL.get(name, {}).items()]
    command(str(folder.path), probes=[name], options=options, out=tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["step"], found["samples_seen"]) == (12, 2 * 1437)
    assert "NaN" not in json.dumps(found)
    assert name in capsys.readouterr().out
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", NAMES)
def test_the_function_of_its_name_stands_alone(name):
    importlib.import_module(f"bigbatch.probes.{name}")  # must not put the module in the function's place
    function = getattr(probes, name)
    assert inspect.isfunction(function)
    assert next(iter(inspect.signature(function).parameters)) == "model"
    assert len(inspect.getdoc(function)) > 100


@pytest.mark.parametrize("name", NAMES)
def test_options_survive_json_are_frozen_and_checked(name):
    config = parts.configure("probes", {"name": name, **SMALL.get(name, {})})
    assert type(config).model_validate_json(config.model_dump_json()) == config
    with pytest.raises(ValueError):
        config.every_steps = 1
    with pytest.raises(Problem, match="every_steps should be greater than 0"):
        parts.configure("probes", {"name": name, "every_steps": 0})


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_names_what_it_is(name):
    assert 20 < len(parts.summary("probes", name)) <= 120
    assert parts.summary("probes", name).endswith(".")
