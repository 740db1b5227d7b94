"""The LEGW paper's LSTM on the Penn Treebank: 13 epochs, flat for 7, then halved each epoch; baseline batch 20."""

from __future__ import annotations

from bigbatch.recipes import PaperNumber
from bigbatch.run import Run

PAPER = (PaperNumber("test_perplexity", 115.91, "You et al. 2018 (LEGW), section 5.1.2"),)


def run() -> Run:
    return Run(
        name="legw-ptb",
        dataset="ptb",
        model="lstm_words",
        global_batch=20,
        optimizer={"name": "momentum", "lr": 0.1},
        schedule={"name": "legw", "baseline_batch": 20, "warmup_epochs": 0.1, "decay": {"kind": "exponential"}},
        epochs=13,
    )
