"""The issue's own case: ResNet-20 on real CIFAR-10."""

from __future__ import annotations

import json

import pytest

from bigbatch.advice import advise_run
from bigbatch.recipes import load_run


@pytest.mark.realdata
def test_resnet20_on_cifar10_is_advised(tmp_path):
    advice = advise_run(load_run("cifar10"), seconds=60.0)
    found = json.loads(advice.to_json())
    assert {"batch", "interval", "grade", "noise_scale", "memory_cap", "schedule"} <= found.keys()
    assert found["now"] == 128
    assert found["about"]["batchnorm"] == "groups of 128"
    assert found["over_training"][-1]["micro_batch"] == 128
    assert 1 < found["noise_scale"] < 50_000
    assert len(found["step_times"]["batches"]) == 5
    # ResNet-20 keeps its activations: between one and ten megabytes a sample
    assert 1e6 < found["memory"]["bytes_per_sample"] < 1e7
    assert len(found["layers"]) == 19 + 2 * 19 + 2  # convolutions, scale and shift after each, the head
    assert advice.write(tmp_path).exists()
