"""ResNet-50 on ImageNet with LARS (You et al. 2017): 256 to 32K with minimal augmentation; lr and warm-up by batch."""

from __future__ import annotations

from bigbatch.recipes import PaperNumber
from bigbatch.run import Run

LR_AND_WARMUP = {256: (4, 0), 1024: (9, 5), 8192: (30, 5), 16384: (33, 12), 32768: (40, 12)}  # Table 4
PAPER = (PaperNumber("test_accuracy", 0.738, "You et al. 2017 (LARS), table 4, minimal augmentation"),)


def run(global_batch: int = 256) -> Run:
    lr, warmup_epochs = LR_AND_WARMUP[global_batch]
    warmup = {"kind": "gradual", "epochs": warmup_epochs} if warmup_epochs else {"kind": "none"}
    return Run(
        name="lars-resnet50",
        dataset={"name": "imagefolder", "folder": "imagenet", "augment": "minimal"},
        model={"name": "resnet", "depth": 50},
        global_batch=global_batch,
        batchnorm_group=32,  # 256 over eight GPUs
        optimizer={"name": "lars", "lr": lr, "weight_decay": 5e-4, "exclude": "none"},
        schedule={
            "name": "composed",
            "warmup": warmup,
            "decay": {"kind": "polynomial", "power": 2.0, "over": "training"},
        },
        epochs=100,
    )
