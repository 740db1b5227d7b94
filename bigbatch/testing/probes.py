"""The contract of a probe: `measure(state, config) -> dict`, which only reads."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from bigbatch import parts
from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem
from bigbatch.run import Run
from bigbatch.testing.common import CheckedPart, raises
from bigbatch.training.loop import train


def check_interval(part: CheckedPart) -> None:
    assert raises(Problem, lambda: part.configure(every_steps=0)), "every_steps=0 is not refused"


def check_a_training_ends_in_the_same_weights(part: CheckedPart) -> None:
    """And the probe answers in plain JSON at its interval."""
    with tempfile.TemporaryDirectory() as runs_dir:
        plain, _ = _train(Path(runs_dir), [])
        probed, rows = _train(Path(runs_dir), [part.configure(every_steps=3)])
    assert all(torch.equal(plain[name], probed[name]) for name in plain), "the probe changed the training"
    answers = [(row["step"], row[part.name]) for row in rows if part.name in row]
    assert [step for step, _ in answers] == [1, 4]
    assert all("problem" not in answer for _, answer in answers)
    json.dumps(answers, allow_nan=False)


def _train(runs_dir: Path, probes: list[parts.Config]) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    run = Run(
        dataset="digits",
        model="mlp",
        global_batch=256,
        micro_batch=64,
        optimizer={"name": "momentum", "lr": 0.1},
        epochs=1,
        probes=probes,
    )
    train(run, runs_dir=runs_dir)
    folder = Folder(runs_dir / run.folder_name)
    return load_file(max(folder.checkpoints.glob("step-*")) / "model.safetensors"), folder.metrics()
