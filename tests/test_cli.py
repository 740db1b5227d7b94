from __future__ import annotations

import subprocess
import sys

import pytest
from small import bigbatch

from bigbatch import parts


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["list", "optim"], ["list"]])
def test_help_and_lists_do_not_wait_for_torch(arguments):
    code = (
        "import sys\nfrom bigbatch.cli import app\n"
        f"app({arguments}, result_action='return_value')\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_help_names_the_commands():
    text = bigbatch("--help").stdout
    assert all(command in text for command in ("demo", "train", "resume", "list"))


@pytest.mark.parametrize("kind", parts.KINDS)
def test_a_list_has_every_part_with_a_line(kind):
    text = bigbatch("list", kind).stdout
    assert all(name in text for name in parts.names(kind))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "digts"], "no recipe called 'digts'; did you mean 'digits'"),
        (["train", "digits", "--set", "optimizer=lasr"], "no optimizer called 'lasr'; did you mean 'lars'"),
        (["train", "digits", "--set", "optimizer.lrr=1"], "has no option 'lrr'; did you mean 'lr'"),
        (["train", "digits", "--set", "sead=1"], "a run has no option 'sead'; did you mean 'seed'"),
        (
            ["train", "digits", "--set", "global_batch=5000"],
            "global_batch 5000 is larger than the 1437 training samples",
        ),
        (["train", "digits", "--ranks", "0"], "--ranks must be at least 1, got 0"),
        (["train", "nothing.json"], "nothing.json cannot be read as a run"),
        (["resume", "nowhere"], "has no run.json, so it is not a complete run"),
        (["list", "optimizers"], "no kind of part called 'optimizers'; did you mean 'optim'"),
    ],
)
def test_wrong_input_is_one_sentence_and_a_code(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    done = bigbatch(*arguments, expect=2)
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_recipe_of_ones_own_in_the_folder_at_hand(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from bigbatch.recipes import digits\n"
        "def small():\n    return digits.run().with_settings(['name=mine', 'steps=2'])\n"
    )
    monkeypatch.chdir(tmp_path)
    assert "test accuracy" in bigbatch("train", "mine:small").stdout
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("mine-")
    again = bigbatch("train", "mine:small").stdout
    assert "finished before; --fresh runs it again" in again


def test_quiet_prints_the_result_alone(tmp_path):
    done = bigbatch("train", "digits", "--set", "steps=2", "--runs-dir", tmp_path, "--quiet")
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1
