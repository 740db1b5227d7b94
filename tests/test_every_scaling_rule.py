"""Every scaling rule keeps its contract; new files are found by looking at the folder."""

from __future__ import annotations

import pytest

from bigbatch import parts
from bigbatch.testing import CheckedPart, find_checks


@pytest.mark.parametrize("check", find_checks("scaling_rules"))
@pytest.mark.parametrize("name", parts.names("scaling_rules"))
def test_contract(name, check):
    check(CheckedPart("scaling_rules", name))
