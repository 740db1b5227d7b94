"""LEGW's LSTM, smaller, on scikit-learn's digits (8 steps of 8 pixels): 'bigbatch demo' trains it; no download.

Initial weights, lr, warm-up and, for LARS, the trust coefficient were chosen at batch 16 alone, by the accuracy on a
held-out fifth of the training set: 'bigbatch demo --tune' repeats it. At any other batch LEGW scales them.
"""

from __future__ import annotations

from typing import Any

from bigbatch.run import Run

BASELINE_BATCH = 16
INIT = "torch"
WARMUP_EPOCHS = 0.2
LR = 0.05
TRUST_COEFFICIENT = 0.1


def run() -> Run:
    return Run(
        name="legw-digits",
        dataset="digits",
        model={"name": "lstm", "hidden": 64, "init": INIT},
        global_batch=BASELINE_BATCH,
        micro_batch=512,
        optimizer={"name": "momentum", "lr": LR},
        schedule=_legw({"kind": "constant"}),
        epochs=30,
    )


def lars() -> Run:
    """Return the same run with LARS and its paper's decay: polynomial of power 2 over the whole training."""
    optimizer = {"name": "lars", "lr": LR, "trust_coefficient": TRUST_COEFFICIENT}
    fields = {"optimizer": optimizer, "schedule": _legw({"kind": "polynomial", "power": 2.0, "over": "training"})}
    return Run(**(run().model_dump(mode="json") | fields))


def _legw(decay: dict[str, Any]) -> dict[str, Any]:
    return {"name": "legw", "baseline_batch": BASELINE_BATCH, "warmup_epochs": WARMUP_EPOCHS, "decay": decay}
