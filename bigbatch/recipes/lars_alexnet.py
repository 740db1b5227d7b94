"""AlexNet on ImageNet with LARS (You et al. 2017): 512 to 32K, for --set global_batch=8192 --set optimizer.lr=10."""

from __future__ import annotations

from bigbatch.recipes import PaperNumber
from bigbatch.run import Run

PIXELS = (1 / 255,) * 3  # Caffe subtracts the mean and keeps 0 to 255, which its initial weights are made for
LR = {512: 2, 4096: 10, 8192: 10, 16384: 14, 32768: 14}  # Table 3(a)
PAPER = (PaperNumber("test_accuracy", 0.587, "You et al. 2017 (LARS), table 3(a)"),)


def run(global_batch: int = 512) -> Run:
    return Run(
        name="lars-alexnet",
        dataset={"name": "imagefolder", "folder": "imagenet", "size": 227, "augment": "minimal", "std": PIXELS},
        model={"name": "alexnet", "tower": "two"},
        global_batch=global_batch,
        optimizer={"name": "lars", "lr": LR[global_batch], "weight_decay": 5e-4, "exclude": "none"},
        schedule={
            "name": "composed",
            "warmup": {"kind": "gradual", "epochs": 2},
            "decay": {"kind": "polynomial", "power": 2.0, "over": "training"},
        },
        epochs=100,
    )
