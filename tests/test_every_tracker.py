"""What holds for every tracker, found by looking at the folder. A tool that is not installed is skipped."""

from __future__ import annotations

import importlib.util
import sqlite3

import pytest
from small import small_run

from bigbatch import parts, trackers
from bigbatch.errors import Problem
from bigbatch.trackers import TrackedRun

NAMES = parts.names("trackers")


@pytest.fixture(autouse=True)
def _on_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))


def start(name, place):
    part = parts.find("trackers", name)
    pytest.importorskip(part.NEEDS)
    return part.start(parts.configure("trackers", name), place)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_missed_in_one_sentence_where_it_is_not_installed(name):
    needed = parts.find("trackers", name).NEEDS
    if importlib.util.find_spec(needed):
        trackers.check_installed([name])
    else:
        with pytest.raises(Problem, match=rf"tracker '{name}' needs {needed}, .*pip install 'bigbatch\[{name}\]'"):
            trackers.check_installed([name])


@pytest.mark.parametrize("name", NAMES)
def test_options_are_frozen_and_checked(name):
    config = parts.configure("trackers", name)
    assert type(config).model_validate_json(config.model_dump_json()) == config
    with pytest.raises(Problem, match="has no option 'colour'"):
        parts.configure("trackers", {"name": name, "colour": "red"})


@pytest.mark.parametrize("name", NAMES)
def test_a_mirror_that_was_closed_goes_on_in_the_same_place(name, tmp_path):
    kept = {}
    for first_step in (1, 4):
        place = TrackedRun("small-123", tmp_path / name, small_run().model_dump(mode="json"), kept)
        place.files.mkdir(exist_ok=True)
        mirror = start(name, place)
        for step in range(first_step, first_step + 3):
            mirror.add(step, {"train_loss": 1 / step, "probe/mean": 2.0 * step})
            mirror.flush()
        mirror.add(first_step + 2, {"test_accuracy": 0.5})
        mirror.flush()
        mirror.close("done")
        kept = place.kept
    if name in READ:
        assert READ[name](tmp_path, kept) == [(step, 1 / step) for step in range(1, 7)]


def mlflow_losses(folder, kept):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    assert client.get_run(kept["run_id"]).info.status == "FINISHED"
    return sorted((metric.step, metric.value) for metric in client.get_metric_history(kept["run_id"], "train_loss"))


def trackio_losses(folder, kept):
    import json

    with sqlite3.connect(folder / "trackio" / "bigbatch.db") as database:
        found = database.execute("select step, metrics from metrics where run_name = ?", [kept["run_name"]]).fetchall()
    rows = [(step, json.loads(metrics)) for step, metrics in found]
    return sorted((step, row["train_loss"]) for step, row in rows if "train_loss" in row)


READ = {"mlflow": mlflow_losses, "trackio": trackio_losses}  # tensorboard is read back in test_trackers.py
