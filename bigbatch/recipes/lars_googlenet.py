"""GoogLeNet on ImageNet with LARS, no auxiliary losses (You et al. 2017): 256 to 16K; lr, epochs, warm-up by batch."""

from __future__ import annotations

from bigbatch.recipes import PaperNumber
from bigbatch.recipes.lars_alexnet import PIXELS
from bigbatch.run import Run

# Table 6: lr, epochs, warm-up epochs
SETTINGS = {
    256: (4, 100, 5),
    1024: (6, 100, 10),
    2048: (7, 150, 25),
    4096: (10, 200, 30),
    8192: (10, 250, 60),
    16384: (10, 350, 110),
}
PAPER = (PaperNumber("test_accuracy", 0.703, "You et al. 2017 (LARS), table 6"),)


def run(global_batch: int = 256) -> Run:
    lr, epochs, warmup_epochs = SETTINGS[global_batch]
    return Run(
        name="lars-googlenet",
        dataset={"name": "imagefolder", "folder": "imagenet", "std": PIXELS},
        model={"name": "googlenet"},
        global_batch=global_batch,
        optimizer={"name": "lars", "lr": lr, "weight_decay": 5e-4, "exclude": "none"},
        schedule={
            "name": "composed",
            "warmup": {"kind": "gradual", "epochs": warmup_epochs},
            "decay": {"kind": "polynomial", "power": 2.0, "over": "training"},
        },
        epochs=epochs,
    )
