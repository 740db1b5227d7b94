"""Every schedule keeps its contract; new files are found by looking at the folder."""

from __future__ import annotations

import pytest

from bigbatch import parts
from bigbatch.testing import CheckedPart, find_checks

OPTIONS = {
    "goyal": {"baseline_batch": 64},
    "legw": {"baseline_batch": 64, "warmup_epochs": 0.5},
}


@pytest.mark.parametrize("check", find_checks("schedules"))
@pytest.mark.parametrize("name", parts.names("schedules"))
def test_contract(name, check):
    check(CheckedPart("schedules", name, OPTIONS.get(name, {})))
