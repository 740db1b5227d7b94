"""'airbench_cifar10' reduced to 20,000 of the images, 8 channels and 5 epochs: about two minutes on one core."""

from __future__ import annotations

from bigbatch.recipes import airbench_cifar10
from bigbatch.run import Run


def run() -> Run:
    reduced = {"name": "airbench-cifar10-small", "filter": {"name": "random", "drop": 0.6}, "epochs": 5}
    return Run(**(airbench_cifar10.run().to_dict() | reduced)).with_settings(["model.width=8"])
