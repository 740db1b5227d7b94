"""Every batch size keeps its contract; new files are found by looking at the folder."""

from __future__ import annotations

import pytest

from bigbatch import parts
from bigbatch.testing import CheckedPart, find_checks

# options with which each one changes within the training
OPTIONS = {
    "constant": {"global_batch": 96},
    "steps": {"stages": [{"from_epoch": 0, "global_batch": 32, "lr": 0.01}, {"from_epoch": 1, "global_batch": 256}]},
    "increase": {"start": 32, "maximum": 256, "decay": {"kind": "multi_step", "at_epochs": [2, 4]}},
    "seesaw": {"start": 32, "maximum": 256, "decay": {"kind": "cosine"}},
    "critical_batch": {
        "start": 32,
        "maximum": 256,
        "measured": [{"epoch": 0, "critical_batch": 40}, {"epoch": 4, "critical_batch": 300}],
    },
    "noise_scale": {"start": 64, "minimum": 32, "maximum": 512},
}


@pytest.mark.parametrize("check", find_checks("batch_sizes"))
@pytest.mark.parametrize("name", parts.names("batch_sizes"))
def test_contract(name, check):
    check(CheckedPart("batch_sizes", name, OPTIONS.get(name, {})))
