"""The LEGW paper's ResNet-50 on ImageNet with LARS: 90 epochs, baseline batch 1024, up to 32K with nothing retuned."""

from __future__ import annotations

from bigbatch.recipes import PaperNumber
from bigbatch.run import Run

PAPER = (PaperNumber("test_accuracy_top5", 0.9336, "You et al. 2018 (LEGW), table 1"),)


def run() -> Run:
    return Run(
        name="legw-resnet50",
        dataset={"name": "imagefolder", "folder": "imagenet"},
        model={"name": "resnet", "depth": 50},
        global_batch=1024,
        batchnorm_group=32,
        # the report names neither weight decay nor trust coefficient: both are those of the LARS paper
        optimizer={"name": "lars", "lr": 2**2.5, "weight_decay": 5e-4, "exclude": "none"},
        schedule={
            "name": "legw",
            "baseline_batch": 1024,
            "warmup_epochs": 0.3125,
            "decay": {"kind": "polynomial", "power": 2.0, "over": "training"},
        },
        epochs=90,
    )
