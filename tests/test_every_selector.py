"""Every selector keeps its contract; new files are found by looking at the folder."""

from __future__ import annotations

import pytest

from bigbatch import parts
from bigbatch.testing import CheckedPart, find_checks

OPTIONS = {
    "gradient_noise": {"noise_batch": 10},
    "small_gradient": {"discard": 0.3},
    "small_loss": {"discard": 0.3},
}


@pytest.mark.parametrize("check", find_checks("selectors"))
@pytest.mark.parametrize("name", parts.names("selectors"))
def test_contract(name, check):
    check(CheckedPart("selectors", name, OPTIONS.get(name, {})))
