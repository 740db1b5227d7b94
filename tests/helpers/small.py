"""A run that takes a second, and ways to run it for real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import process_trees
import torch
from safetensors.torch import load_file

from bigbatch.artifacts.folder import Folder
from bigbatch.run import Run


def small_run(**fields: Any) -> Run:
    about: dict[str, Any] = {
        "name": "small",
        "dataset": "digits",
        "model": "mlp",
        "global_batch": 256,
        "micro_batch": 64,
        "optimizer": {"name": "momentum", "lr": 0.1},
        "epochs": 2,
    }
    return Run(**(about | fields))


def bigbatch(*arguments: object, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, which ends with all that it started when the test does."""
    done = process_trees.run([sys.executable, "-m", "bigbatch", *map(str, arguments)], timeout=240)
    assert expect is None or done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def write_run(run: Run, folder: Path) -> Path:
    path = folder / f"{run.name}.json"
    path.write_text(run.to_json())
    return path


def final_weights(folder: Folder | Path) -> dict[str, torch.Tensor]:
    path = folder.path if isinstance(folder, Folder) else folder
    newest = max((path / "checkpoint").glob("step-*"))
    return load_file(newest / "model.safetensors")


def same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)
