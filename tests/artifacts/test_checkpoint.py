from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

from bigbatch.artifacts import checkpoint
from bigbatch.errors import Problem


def save(folder, step, value=0.0, run="aaaa"):
    model = nn.Linear(3, 2)
    nn.init.constant_(model.weight, value)
    return checkpoint.save(folder, step, run, model, {"step": step, "moments": [torch.full((2,), value)]})


def test_what_is_saved_is_loaded(tmp_path):
    save(tmp_path, 7, value=0.1)
    path, state = checkpoint.load(tmp_path, "aaaa")
    model = nn.Linear(3, 2)
    checkpoint.load_model(path, model)
    assert state["step"] == 7
    assert torch.equal(state["moments"][0], torch.full((2,), 0.1))
    assert torch.equal(model.weight, torch.full((2, 3), 0.1))


def test_nothing_to_load(tmp_path):
    assert checkpoint.load(tmp_path / "checkpoint", "aaaa") is None


def test_the_last_two_are_kept(tmp_path):
    for step in (5, 9, 10, 100):
        save(tmp_path, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000010", "step-00000100"]


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["model.safetensors", "state.pt"])
def test_a_flipped_bit_is_noticed_and_the_one_before_is_used(tmp_path, name):
    save(tmp_path, 1, value=1.0)
    flip_a_bit(save(tmp_path, 2, value=2.0) / name)
    with pytest.warns(UserWarning, match=f"{name} is damaged.*continuing from step-00000001"):
        _, state = checkpoint.load(tmp_path, "aaaa")
    assert state["step"] == 1


@pytest.mark.parametrize("name", ["model.safetensors", "state.pt", "manifest.json"])
def test_a_missing_or_truncated_file_is_noticed(tmp_path, name):
    (save(tmp_path, 1) / name).unlink()
    path = save(tmp_path, 2) / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(Problem, match="no earlier checkpoint is undamaged"):
        checkpoint.load(tmp_path, "aaaa")


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    save(tmp_path, 1, run="bbbb")
    with pytest.raises(Problem, match=r"belongs to another run \(bbbb, not aaaa\), and no earlier checkpoint"):
        checkpoint.load(tmp_path, "aaaa")


def test_state_with_code_in_it_is_not_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("executed",))

    path = save(tmp_path, 1)
    torch.save({"evil": Evil()}, path / "state.pt")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["sha256"]["state.pt"] = checkpoint._sha256(path / "state.pt")
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        checkpoint.load(tmp_path, "aaaa")


FILL_THE_DISK = """
import resource, signal, sys
from pathlib import Path
import torch
from torch import nn
from bigbatch.artifacts import checkpoint
from bigbatch.errors import Problem

folder, where = Path(sys.argv[1]), sys.argv[2]
checkpoint.save(folder, 1, "aaaa", nn.Linear(3, 2), {})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
model, state = nn.Linear(3, 2), {}
if where == "model":
    model = nn.Linear(300, 200)
else:
    state = {"moments": torch.zeros(100_000)}
try:
    checkpoint.save(folder, 2, "aaaa", model, state)
except Problem as problem:
    print(problem)
"""


@pytest.mark.parametrize("where", ["model", "state"])
def test_a_disk_that_takes_no_more_leaves_the_earlier_checkpoint(tmp_path, where):
    """A limit on file size fails a write in its middle, as a full disk does."""
    done = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, str(tmp_path), where], capture_output=True, text=True, timeout=60
    )
    assert "checkpoint of step 2 could not be written" in done.stdout, done.stderr
    assert "step-00000001 is untouched" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert checkpoint.load(tmp_path, "aaaa") is not None


def test_the_hidden_state_of_older_checkpoints_is_read():
    """Version 0.1 called it `carried`."""
    progress = {"epoch": 1, "offset": 64, "step": 3, "samples": 192}
    state = {
        "progress": progress,
        "global_batch": 64,
        "optimizer": {"state": {}},
        "carried": [torch.ones(2)],
        "epoch_loss_sum": 1.5,
        "seconds": 2.0,
        "seconds_in_steps": 1.0,
    }
    loaded = checkpoint.TrainingState.from_dict(state)
    assert loaded.hidden_state is not None
    assert torch.equal(loaded.hidden_state[0], torch.ones(2))
    assert loaded.progress.step == 3
    assert "hidden_state" in loaded.to_dict()


def test_any_flipped_bit_of_the_manifest_falls_back_to_the_one_before(tmp_path):
    save(tmp_path, 1)
    newest = save(tmp_path, 2)
    manifest = newest / "manifest.json"
    whole = manifest.read_bytes()
    loaded = {1: 0, 2: 0}
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        manifest.write_bytes(flipped)
        found, damages = checkpoint.find_newest(tmp_path, "aaaa")
        assert bool(damages) == (found.step == 1)
        loaded[found.step] += 1
    # a blank that becomes another blank changes nothing
    assert loaded[2] < 8 * whole.count(b"\n")
    assert loaded[1] > 0.97 * 8 * len(whole)
