"""Mirrors of metrics.jsonl: complete, each step once, and without a trace in the training."""

from __future__ import annotations

import json
import signal
import warnings
from collections import defaultdict
from pathlib import Path

import pytest
from small import bigbatch, final_weights, same_bits, small_run, write_run

from bigbatch.artifacts.folder import Folder
from bigbatch.artifacts.metrics import scalars
from bigbatch.errors import Notice, Problem
from bigbatch.launch import mirrors
from bigbatch.trackers import check_installed
from bigbatch.trackers.mirroring.process import MetricsMirror, mirror_until
from bigbatch.training.loop import train


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads from a run: (step, value) of each tag, in the order they were written."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    found = defaultdict(list)
    for file in sorted((folder / "trackers" / "tensorboard").glob("events.*")):
        for event in LegacyEventFileLoader(str(file)).Load():
            for value in event.summary.value:
                found[value.tag].append((event.step, value.simple_value))
    return dict(found)


TAGS = {
    "train_loss": "train/loss",
    "train_accuracy": "train/accuracy",
    "lr": "train/lr",
    "test_loss": "test/loss",
    "test_accuracy": "test/accuracy",
}


def truth(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found = defaultdict(list)
    for row in Folder(folder).metrics():
        for name, value in scalars(row).items():
            if name != "step" and (not found[name] or found[name][-1][0] < row["step"]):  # a test repeats its step's
                found[name].append((row["step"], pytest.approx(value, rel=1e-6)))  # events are float32
    return {TAGS.get(name, name): points for name, points in found.items()}


def test_tensorboard_reads_what_the_metrics_say_and_the_training_is_the_same_to_the_bit(tmp_path):
    run = small_run(probes=[{"name": "ratio", "every_steps": 4}])
    train(run, runs_dir=tmp_path / "tracked", track=["tensorboard"])
    train(run, runs_dir=tmp_path / "alone")
    tracked, alone = (tmp_path / name / run.folder_name for name in ("tracked", "alone"))
    assert events(tracked) == truth(tracked)
    assert any(name.startswith("ratio/") for name in events(tracked))
    assert same_bits(final_weights(tracked), final_weights(alone))
    assert [row.get("train_loss") for row in Folder(tracked).metrics()] == [
        row.get("train_loss") for row in Folder(alone).metrics()
    ]
    assert not (alone / "trackers").exists()


def test_a_finished_run_is_mirrored_afterwards_and_only_once(tmp_path):
    run = small_run()
    train(run, runs_dir=tmp_path)
    folder = tmp_path / run.folder_name
    for _ in range(2):
        train(run, runs_dir=tmp_path, track=["tensorboard"])
        assert events(folder) == truth(folder)


def test_killed_with_kill_9_and_resumed_no_step_is_mirrored_twice(tmp_path):
    dying = {"name": "outside:DyingSGD", "lr": 0.1, "marker": str(tmp_path / "died"), "at_step": 8}
    run = small_run(optimizer=dying)
    started = ("train", write_run(run, tmp_path), "--runs-dir", tmp_path, "--track", "tensorboard")
    assert bigbatch(*started, expect=None).returncode == -signal.SIGKILL
    bigbatch("resume", tmp_path / run.folder_name, "--track", "tensorboard", "--quiet")
    assert events(tmp_path / run.folder_name) == truth(tmp_path / run.folder_name)


@pytest.mark.slow
def test_two_ranks_are_mirrored_once(tmp_path):
    run = small_run(epochs=1)
    bigbatch("train", write_run(run, tmp_path), "--runs-dir", tmp_path, "--ranks", 2, "--track", "tensorboard")
    folder = tmp_path / run.with_settings(["engine=ddp"]).folder_name
    assert events(folder) == truth(folder)


def test_started_over_the_mirror_is_new_too(tmp_path):
    run = small_run(epochs=1)
    for fresh in (False, True):
        train(run, runs_dir=tmp_path, fresh=fresh, track=["tensorboard"])
        assert events(tmp_path / run.folder_name) == truth(tmp_path / run.folder_name)


@pytest.fixture
def own_trackers(tmp_path, monkeypatch):
    """A package of trackers that a user wrote, found in the folder at hand."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / f"own_{abs(hash(tmp_path))}"
    package.mkdir()
    (package / "__init__.py").write_text("")

    def write(name: str, body: str) -> str:
        (package / f"{name}.py").write_text(
            f"from bigbatch import parts\nNEEDS = 'json'\nclass Config(parts.Config):\n    pass\n{body}"
        )
        return f"{package.name}.{name}"

    return write


LISTED = """
import json
class Mirror:
    def __init__(self, place):
        self.path = place.files / "rows.jsonl"
        self.lines = []
        place.kept["starts"] = place.kept.get("starts", 0) + 1
    def add(self, step, values):
        {first}
        self.lines.append([step, values])
    def flush(self):
        with self.path.open("a") as file:
            file.writelines(json.dumps(line) + "\\n" for line in self.lines)
        self.lines = []
    def close(self, status):
        (self.path.parent / "status").write_text(status)
def start(config, place):
    return Mirror(place)
"""


def mirrored_rows(folder: Path, name: str) -> list[tuple[int, str]]:
    lines = (folder / "trackers" / name / "rows.jsonl").read_text().splitlines()
    return [(step, key) for step, values in map(json.loads, lines) for key in values]


def test_rows_that_a_resumed_run_makes_again_are_not_mirrored_again(tmp_path, own_trackers):
    name = own_trackers("listed", LISTED.format(first="pass"))
    check_installed([name])  # as a training does before it starts a mirror
    folder = Folder(tmp_path / "run")
    folder.create(small_run())
    (folder.path / "trackers").mkdir()
    rows = [{"step": step, "train_loss": 1 / step} for step in range(1, 9)]
    rows.insert(4, {"step": 4, "test_loss": 0.5})  # a test follows the step that it tests

    def write(*chosen: dict) -> None:
        folder.write("metrics.jsonl", "".join(json.dumps(row) + "\n" for row in chosen))

    mirror = MetricsMirror(folder.path, name)
    write(*rows[:4])
    mirror.send_new_rows()
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(rows[4]) + "\n" + json.dumps(rows[5]) + "\n" + '{"step": 6, "tr')  # cut short
    mirror.send_new_rows()
    assert mirrored_rows(folder.path, name)[-1] == (5, "train_loss")
    write(*rows[:3])  # back to the checkpoint at step 3
    mirror.send_new_rows()
    write(*rows)
    mirror_until(folder.path, name, lambda: True)  # another process, later
    assert mirrored_rows(folder.path, name) == [
        *((step, "train_loss") for step in range(1, 5)),
        (4, "test_loss"),
        *((step, "train_loss") for step in range(5, 9)),
    ]
    assert json.loads((folder.path / "trackers" / f"{name}.json").read_text())["kept"] == {"starts": 2}


def test_a_tracker_that_breaks_is_a_notice_and_nothing_else(tmp_path, own_trackers):
    name = own_trackers("broken", LISTED.format(first="if step == 5: raise OSError('the server is gone')"))
    run = small_run()
    with pytest.warns(Notice, match=r"broken stopped mirroring \(OSError: the server is gone\).*--track .*fills in"):
        summary = train(run, runs_dir=tmp_path, track=[name])
    assert summary["steps"] == 12
    train(run, runs_dir=tmp_path / "alone")
    alone, tracked = (Folder(base / run.folder_name) for base in (tmp_path / "alone", tmp_path))
    assert same_bits(final_weights(alone), final_weights(tracked))
    assert tracked.status == "done"


def test_a_tracker_that_hangs_is_ended(tmp_path, own_trackers, monkeypatch):
    name = own_trackers("hanging", "import threading\ndef start(config, place):\n    threading.Event().wait()\n")
    monkeypatch.setattr(mirrors, "_SECONDS_TO_FINISH", 2.0)
    with pytest.warns(Notice, match="hanging stopped mirroring .*no answer within 2 s"):
        assert train(small_run(epochs=1), runs_dir=tmp_path, track=[name])["steps"] == 6


def test_the_mirror_learns_how_the_run_ended(tmp_path, own_trackers):
    name = own_trackers("listed", LISTED.format(first="pass"))
    run = small_run(optimizer={"name": "outside:ExplodingSGD", "lr": 0.1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(run, runs_dir=tmp_path, track=[name])
    files = tmp_path / run.folder_name / "trackers" / name
    assert (files / "status").read_text() == "diverged"
    assert (4, "train_loss") not in mirrored_rows(files.parent.parent, name)  # it was not finite
    assert (4, "lr") in mirrored_rows(files.parent.parent, name)


def test_what_is_not_installed_is_said_before_anything_is_made(tmp_path, own_trackers):
    missing = own_trackers("missing", "NEEDS = 'no_such_tool'\n")
    with pytest.raises(Problem, match="needs no_such_tool, which is not installed: pip install no_such_tool"):
        train(small_run(), runs_dir=tmp_path / "runs", track=["tensorboard", missing])
    assert not (tmp_path / "runs").exists()
    with pytest.raises(Problem, match="no tracker called 'tensorbord'; did you mean 'tensorboard'"):
        train(small_run(), runs_dir=tmp_path / "runs", track=["tensorbord"])
    assert not (tmp_path / "runs").exists()
