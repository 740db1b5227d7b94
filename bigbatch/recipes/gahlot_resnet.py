"""ResNet-18 to -152 on CIFAR-10 (Gahlot et al. 2020): 50 epochs, batch 16 to 20,480, for --set model.depth=101."""

from __future__ import annotations

from bigbatch.recipes import PaperNumber
from bigbatch.run import Run

PAPER = (PaperNumber("test_accuracy", 0.826, "Gahlot et al. 2020, section IV.B: full data, batch 256, decay 0.012"),)


def run() -> Run:
    return Run(
        name="gahlot-resnet",
        dataset={"name": "cifar10", "crop": 28},
        model={"name": "resnet", "depth": 18},
        global_batch=256,
        batchnorm_group=32,  # 256 over eight GPUs
        # the paper does not say which of the learning rates of its Fig. 4 this was trained at
        optimizer={"name": "momentum", "lr": 0.01, "weight_decay": 0.012},
        epochs=50,
    )
