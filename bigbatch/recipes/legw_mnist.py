"""The LEGW paper's LSTM on MNIST: 25 epochs, baseline batch 128, nothing to retune for any other batch."""

from __future__ import annotations

from bigbatch.recipes import PaperNumber
from bigbatch.run import Run

PAPER = (PaperNumber("test_accuracy", 0.988, "You et al. 2018 (LEGW), section 5.1.1"),)


def run() -> Run:
    return Run(
        name="legw-mnist",
        dataset="mnist",
        model="lstm",
        global_batch=128,
        optimizer={"name": "momentum", "lr": 0.1},
        schedule={"name": "legw", "baseline_batch": 128, "warmup_epochs": 0.1, "decay": {"kind": "constant"}},
        epochs=25,
    )
