"""ResNet-20 on CIFAR-10 (He et al. 2016): batch 128, lr 0.1, a tenth at half and at three quarters of 164 epochs."""

from __future__ import annotations

from bigbatch.recipes import PaperNumber
from bigbatch.run import Run

PAPER = (PaperNumber("test_accuracy", 0.9125, "He et al. 2016, table 6: error 8.75 %"),)


def run() -> Run:
    return Run(
        name="cifar10",
        dataset="cifar10",
        model={"name": "resnet_cifar", "depth": 20},
        global_batch=128,
        batchnorm_group=128,
        optimizer={"name": "momentum", "lr": 0.1, "weight_decay": 1e-4},
        schedule={"name": "composed", "decay": {"kind": "multi_step", "at_epochs": [82, 123]}},
        epochs=164,
    )
