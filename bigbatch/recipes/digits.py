"""A small CNN on scikit-learn's handwritten digits: seconds on any machine, no download."""

from __future__ import annotations

from bigbatch.run import Run


def run() -> Run:
    return Run(
        name="digits",
        dataset="digits",
        model="cnn",
        global_batch=16,
        optimizer={"name": "momentum", "lr": 0.02},
        epochs=10,
    )
