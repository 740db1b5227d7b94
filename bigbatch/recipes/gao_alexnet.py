"""AlexNet on CIFAR-10 (Gao & Zhong 2020): batch 8192 at lr 0.05; the paper varies the batch from 32 to 49,152."""

from __future__ import annotations

from bigbatch.run import Run


def run() -> Run:
    return Run(
        name="gao-alexnet",
        dataset="cifar10",
        model={"name": "alexnet", "variant": "cifar"},
        global_batch=8192,
        # the paper says SGD, and neither momentum nor decay: the usual ones
        optimizer={"name": "momentum", "lr": 0.05},
        epochs=200,
    )
