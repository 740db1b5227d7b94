"""Every model keeps its contract; new files are found by looking at the folder."""

from __future__ import annotations

import pytest

from bigbatch import parts
from bigbatch.testing import CheckedPart, find_checks

# options that make a heavy model light enough for a test
OPTIONS = {
    "alexnet": {"variant": "cifar"},
    "resnet": {"depth": 50, "width": 0.125},
    "lstm_words": {"embedding": 8, "hidden": 8},
    "gpt": {"width": 8, "heads": 2},
    "resnet9": {"width": 4},
}


def test_all_models_of_the_papers_are_found():
    assert {"resnet", "resnet_cifar", "alexnet", "googlenet", "cnn", "mlp", "lstm", "lstm_words"} <= set(
        parts.names("models")
    )


@pytest.mark.parametrize("check", find_checks("models"))
@pytest.mark.parametrize("name", parts.names("models"))
def test_contract(name, check):
    check(CheckedPart("models", name, OPTIONS.get(name, {})))
