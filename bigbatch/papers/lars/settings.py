"""LARS's trainings at each scale, by the batch of the paper that they stand for.

smoke     a small CNN on the digits, a thirty-second of the batch
laptop    AlexNet for small images on a fifth of CIFAR-10, an eighth of the batch
paper     the recipes lars_alexnet, lars_alexnet_bn, lars_resnet50 and lars_googlenet
"""

from __future__ import annotations

from typing import Any

from bigbatch.papers.records import Scale
from bigbatch.recipes import lars_alexnet, lars_alexnet_bn, lars_googlenet, lars_resnet50
from bigbatch.run import Run

SEEDS = {"smoke": 1, "laptop": 3, "paper": 1}
NETWORKS = {
    "AlexNet": lars_alexnet.run,
    "AlexNet-BN": lars_alexnet_bn.run,
    "ResNet-50": lars_resnet50.run,
    "GoogLeNet": lars_googlenet.run,
}
_SHRINK = {"smoke": 32, "laptop": 8, "paper": 1}
_SMALL_MODELS: dict[str, dict[str, Any]] = {
    "AlexNet": {"name": "cnn"},
    "AlexNet-BN": {"name": "cnn", "batch_norm": True},
    "ResNet-50": {"name": "cnn", "batch_norm": True, "hidden": 32},
    "GoogLeNet": {"name": "cnn", "hidden": 32},
}
_LAPTOP_MODELS: dict[str, dict[str, Any]] = {
    "AlexNet": {"name": "alexnet", "variant": "cifar", "tower": "two"},
    "AlexNet-BN": {"name": "alexnet", "variant": "cifar", "tower": "two", "batch_norm": True},
    "ResNet-50": {"name": "resnet_cifar", "depth": 20},
    "GoogLeNet": {"name": "resnet_cifar", "depth": 32},
}
_EPOCHS = {"smoke": 8, "laptop": 20, "paper": 100}
_FILTER = {"smoke": None, "laptop": {"name": "random", "drop": 0.8}}
# the paper's learning rates belong to η = 0.001 and ImageNet; the product that small networks want is larger
_TRUST = {
    "smoke": {"AlexNet": 0.01, "AlexNet-BN": 0.006, "ResNet-50": 0.003, "GoogLeNet": 0.003},
    "laptop": dict.fromkeys(NETWORKS, 0.003),
}
# with momentum: how many times the paper's
_SGD_LR = {"smoke": 5.0, "laptop": 1.0, "paper": 1.0}


def lars(scale: Scale, network: str, batch: int, *, lr: float | None = None, epochs: float | None = None) -> Run:
    """Return a network with LARS at a batch of the paper, with the paper's lr, warm-up and epochs unless given."""
    recipe = NETWORKS[network](batch)
    run = recipe if scale == "paper" else _reduce(scale, network, recipe)
    settings = [f"optimizer.lr={lr}"] if lr is not None else []
    if epochs is not None:
        settings.append(f"epochs={epochs * _EPOCHS[scale] / 100}")
    return run.with_settings(settings)


def momentum(scale: Scale, network: str, batch: int, lr: float, warmup_epochs: float, epochs: float = 100) -> Run:
    """Return a network with plain momentum at a learning rate of the paper's Table 1."""
    run = lars(scale, network, 512 if network.startswith("AlexNet") else 256, epochs=epochs)
    fields = run.model_dump(mode="json") | {"global_batch": max(16, batch // _SHRINK[scale])}
    fields["optimizer"] = {"name": "momentum", "lr": lr * _SGD_LR[scale], "weight_decay": 5e-4}
    # footnote 2: from 0.001 to the target
    warmup = {"kind": "gradual", "epochs": warmup_epochs * _EPOCHS[scale] / 100, "start": min(1.0, 0.001 / lr)}
    fields["schedule"]["warmup"] = warmup if warmup_epochs else {"kind": "none"}
    return Run(**fields | {"name": f"sgd-{network.lower()}"})


def _reduce(scale: Scale, network: str, recipe: Run) -> Run:
    fields = recipe.model_dump(mode="json")
    shorter = _EPOCHS[scale] / 100
    fields["dataset"] = {"name": {"smoke": "digits", "laptop": "cifar10"}[scale]}
    fields["filter"] = _FILTER[scale]
    fields["model"] = (_SMALL_MODELS if scale == "smoke" else _LAPTOP_MODELS)[network]
    fields["optimizer"]["trust_coefficient"] = _TRUST[scale][network]
    fields["global_batch"] = max(16, fields["global_batch"] // _SHRINK[scale])
    normalises = network in ("AlexNet-BN", "ResNet-50") or (scale == "laptop" and network == "GoogLeNet")
    fields["batchnorm_group"] = min(64, fields["global_batch"]) if normalises else "auto"
    fields["micro_batch"] = fields["batchnorm_group"] if normalises else 256
    fields["epochs"] *= shorter
    if fields["schedule"]["warmup"]["kind"] != "none":
        fields["schedule"]["warmup"]["epochs"] *= shorter
    return Run(**fields)
