"""The README and CONTRIBUTING are true: what they show is run. (`make` and the benchmarks are run by .ci/run.)"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from small import bigbatch

HOME = Path(__file__).parent.parent
README = (HOME / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (HOME / "CONTRIBUTING.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


SHELL_LINES = [line for block in blocks(README, "sh") for line in block.splitlines()]
COMMANDS = [shlex.split(line, comments=True) for line in SHELL_LINES]


@pytest.fixture(scope="module")
def one_folder(tmp_path_factory):
    """Later commands of the README use what earlier ones wrote."""
    return tmp_path_factory.mktemp("readme")


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] == "bigbatch"], ids=" ".join)
def test_a_command_of_the_readme_works(command, one_folder, monkeypatch):
    monkeypatch.chdir(one_folder)
    assert bigbatch(*command[1:]).stdout


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] != "bigbatch"], ids=" ".join)
def test_the_other_commands_of_the_readme_are_run_by_ci(command):
    ci = (HOME / ".ci" / "run").read_text()
    assert " ".join(command) in ci


def test_the_python_of_the_readme_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"model": torch.nn.Linear(2, 2)}
    for block in blocks(README, "python"):
        exec(compile(block, "README.md", "exec"), names)
    assert names["optimizer"].param_groups[0]["lr"] < 0.8  # the scheduler holds it
    assert names["summary"]["test_accuracy"] > 0.85


def test_the_readme_names_what_is_there():
    for path in re.findall(r"`((?:bigbatch|examples|benchmarks|tests)/[\w/]*(?:\.py)?)`", README):
        assert (HOME / path).exists(), path


def test_a_part_in_ten_lines(tmp_path, monkeypatch):
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg" / "sign.py").write_text(blocks(CONTRIBUTING, "python")[0])
    monkeypatch.chdir(tmp_path)
    text = bigbatch("train", "digits", "--set", "optimizer=mypkg.sign", "--set", "optimizer.lr=0.002", "--quiet").stdout
    assert float(re.search(r"test accuracy ([\d.]+) %", text).group(1)) > 80
