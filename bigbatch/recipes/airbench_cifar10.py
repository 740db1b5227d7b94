"""ResNet-9 on CIFAR-10 within a few epochs, after the DAWNBench entries and airbench (Page 2018; Jordan 2024).

Label smoothing, flips and crops, a short warm-up and a linear decay to zero. `width` 16 instead of 64 channels is for
machines without a GPU.
"""

from __future__ import annotations

from bigbatch.run import Run


def run() -> Run:
    return Run(
        name="airbench-cifar10",
        dataset="cifar10",
        model={"name": "resnet9", "width": 16},
        global_batch=128,
        batchnorm_group=128,
        optimizer={"name": "nesterov", "lr": 0.15, "weight_decay": 5e-4},
        schedule={
            "name": "composed",
            "warmup": {"kind": "gradual", "epochs": 1},
            "decay": {"kind": "polynomial", "power": 1.0, "over": "after_warmup"},
        },
        loss={"name": "cross_entropy", "label_smoothing": 0.2},
        epochs=10,
    )
