"""A small GPT on the words of the Penn Treebank, with AdamW: one epoch, minutes on one core."""

from __future__ import annotations

from bigbatch.run import Run


def run() -> Run:
    return Run(
        name="gpt-ptb",
        dataset={"name": "ptb", "steps": 32, "shuffle": True},
        model={"name": "gpt", "width": 64},
        global_batch=32,
        optimizer={"name": "adamw", "lr": 0.004, "weight_decay": 0.1},
        schedule={
            "name": "composed",
            "warmup": {"kind": "gradual", "epochs": 0.02},
            "decay": {"kind": "polynomial", "power": 1.0, "over": "after_warmup"},
        },
        clip_norm=1.0,
        epochs=1,
    )
