"""AlexNet-BN on ImageNet with LARS (You et al. 2017): 512 to 32K, for --set global_batch=8192 --set optimizer.lr=14."""

from __future__ import annotations

from bigbatch.recipes import PaperNumber, lars_alexnet
from bigbatch.run import Run

LR = {512: 2, 4096: 10, 8192: 14, 16384: 23, 32768: 22}  # Table 3(b)
PAPER = (PaperNumber("test_accuracy", 0.602, "You et al. 2017 (LARS), table 3(b)"),)


def run(global_batch: int = 512) -> Run:
    changes = ["name=lars-alexnet-bn", "model.batch_norm=true", "schedule.warmup.epochs=5"]
    # statistics of 64 samples: 512 over the eight GPUs of the paper's machine
    changes += [f"global_batch={global_batch}", f"optimizer.lr={LR[global_batch]}", "batchnorm_group=64"]
    return lars_alexnet.run().with_settings(changes)
