"""The large LSTM of Zaremba et al. 2014 on the Penn Treebank under LEGW: 55 epochs, baseline batch 20."""

from __future__ import annotations

from bigbatch.recipes import PaperNumber
from bigbatch.run import Run

PAPER = (PaperNumber("test_perplexity", 78.4, "Zaremba et al. 2014, table 1, large"),)


def run() -> Run:
    return Run(
        name="legw-ptb-large",
        dataset={"name": "ptb", "steps": 35},
        model={"name": "lstm_words", "embedding": 1500, "hidden": 1500, "dropout": 0.65, "init_scale": 0.04},
        global_batch=20,
        optimizer={"name": "sgd", "lr": 1.0},
        schedule={
            "name": "legw",
            "baseline_batch": 20,
            "warmup_epochs": 0.1,
            "decay": {"kind": "exponential", "flat_epochs": 14, "multiply_by": 1 / 1.15},
        },
        clip_norm=10,
        epochs=55,
    )
