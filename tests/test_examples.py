"""The examples run as they are printed, and learn."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def _examples_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    for name in ("bare_loop", "lightning_module"):
        sys.modules.pop(name, None)


def test_the_bare_loop_learns_digits():
    bare_loop = importlib.import_module("bare_loop")
    assert bare_loop.main(epochs=8) > 0.8  # chance is 0.1


def test_the_lightning_module_learns_digits_and_steps_the_schedule_once_a_batch(tmp_path):
    pytest.importorskip("lightning")
    module = importlib.import_module("lightning_module")
    accuracy = module.main(epochs=8, default_root_dir=tmp_path, enable_progress_bar=False, enable_model_summary=False)
    assert accuracy > 0.8
    saved = torch.load(next(tmp_path.rglob("*.ckpt")), weights_only=True)
    scheduler = saved["lr_schedulers"][0]
    # 1500 digits in batches of 256 are 6 steps, the last of 220
    assert (scheduler["steps"], scheduler["samples"]) == (8 * 6, 8 * 1500)
