"""LEGW's trainings at each scale, by the batch of the paper that they stand for.

smoke     an LSTM of 32 units on the digits from batch 32 on, an LSTM on a synthetic text from 16 on
laptop    the paper's LSTM on a tenth of MNIST at an eighth of the batch, or, where `full`, its own setting; PTB
paper     the recipes legw_mnist, legw_ptb and legw_resnet50
"""

from __future__ import annotations

from typing import Any

from bigbatch.papers.records import Scale
from bigbatch.recipes import load_run
from bigbatch.run import Run

SEEDS = {"smoke": 1, "laptop": 3, "paper": 3}
IMAGE_BATCH, TEXT_BATCH = 128, 20  # the paper's baselines
LARGEST_IMAGE_BATCH, LARGEST_TEXT_BATCH = 8192, 640
POLY = {"kind": "polynomial", "power": 2.0, "over": "training"}
ADAM: dict[str, Any] = {"optimizer": {"name": "adam", "lr": 0.001}, "schedule": {"name": "constant"}}
ADADELTA: dict[str, Any] = {"optimizer": {"name": "adadelta"}, "schedule": {"name": "constant"}}


def image_lstm(scale: Scale, batch: int, *, full: bool = False, **fields: Any) -> Run:
    """Return the LSTM on images at a batch of the paper under LEGW; `fields` replace those of the run."""
    base = load_run("legw_mnist", ["micro_batch=128"])
    if scale == "smoke":
        schedule = {"name": "legw", "baseline_batch": 32, "warmup_epochs": 0.1, "decay": {"kind": "constant"}}
        small = {"dataset": {"name": "digits"}, "model": {"name": "lstm", "hidden": 32}, "schedule": schedule}
        base = change(base, **small, optimizer={"name": "momentum", "lr": 0.15}, epochs=10, micro_batch=512)
    elif scale == "laptop" and not full:
        tenth = ['filter={"name": "random", "drop": 0.9}', "schedule.baseline_batch=16", "optimizer.lr=0.035"]
        base = base.with_settings([*tenth, "micro_batch=256"])
    return _at_batch(base, scale, batch / IMAGE_BATCH, fields)


def text_lstm(scale: Scale, batch: int, **fields: Any) -> Run:
    """Return the LSTM on text at a batch of the paper under LEGW."""
    base = load_run("legw_ptb", ["micro_batch=20"])
    if scale == "smoke":
        model = {"name": "lstm_words", "embedding": 32, "hidden": 32, "layers": 1}
        small = {"dataset": {"name": "markov_text", "tokens": 10_000}, "model": model, "epochs": 8, "micro_batch": 128}
        base = change(base, **small).with_settings(["schedule.baseline_batch=16", "optimizer.lr=3.0"])
    return _at_batch(base, scale, batch / TEXT_BATCH, fields)


def resnet(scale: Scale, batch: int, **fields: Any) -> Run:
    """Return LARS + LEGW of Table 1 at a batch of the paper: ResNet-50, or a small network with BatchNorm."""
    if scale == "paper":
        return change(load_run("legw_resnet50"), global_batch=batch, **fields)
    model: dict[str, Any] = {"name": "cnn", "batch_norm": True}
    if scale == "laptop":
        model = {"name": "resnet_cifar", "depth": 20}
    lars = {"name": "lars", "lr": 0.1, "trust_coefficient": 0.02, "weight_decay": 1e-4}
    base = Run(
        name="legw-resnet",
        dataset={"smoke": "digits", "laptop": "cifar10"}[scale],
        model=model,
        global_batch=128,
        batchnorm_group=32 if scale == "smoke" else 128,
        optimizer=lars,
        schedule={"name": "legw", "baseline_batch": 128, "warmup_epochs": 0.1, "decay": POLY},
        epochs={"smoke": 6, "laptop": 30}[scale],
    )
    if scale == "smoke":
        base = base.with_settings(["global_batch=32", "schedule.baseline_batch=32"])
    return _at_batch(base, scale, batch / 1024, fields)


def scheme(run: Run, name: str) -> dict[str, Any]:
    """Return the schedule of a tuning scheme of Fig. 4 that starts from the baseline of a run under LEGW."""
    legw = run.schedule.model_dump(mode="json")
    if name in ("same lr", "linear scaling") and run.global_batch.global_batch == legw["baseline_batch"]:  # type: ignore[attr-defined]
        return legw  # nothing to scale
    baseline, decay = {"baseline_batch": legw["baseline_batch"]}, legw["decay"]
    warmup = {"kind": "gradual", "epochs": legw["warmup_epochs"]}
    linear = {"name": "composed", "scaling": "linear", **baseline, "warmup": warmup}
    return {
        "LEGW": legw,
        "same lr": {"name": "composed", "scaling": "none", "warmup": warmup, "decay": decay},
        "linear scaling": linear | {"decay": decay},
        "linear scaling, poly": linear | {"decay": POLY},
        "linear scaling, poly, 5-epoch warm-up": {
            "name": "goyal",
            **baseline,
            "decay": POLY,
            # five epochs of the paper's 25 or 90: as large a part of a shorter training
            "warmup_epochs": min(5.0, 0.2 * (run.epochs or 25)),
        },
    }[name]


def change(run: Run, **fields: Any) -> Run:
    return Run(**(run.model_dump(mode="json") | fields))


def _at_batch(base: Run, scale: Scale, k: float, fields: dict[str, Any]) -> Run:
    """Return the run at k times its baseline's batch. The digits are too few for that: √k times."""
    baseline: int = base.schedule.baseline_batch  # type: ignore[attr-defined]
    return change(base, global_batch=round(baseline * (k**0.5 if scale == "smoke" else k)), **fields)
