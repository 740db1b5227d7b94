"""The learning rate and the warm-up at another batch: what LEGW, linear scaling and LARS make of the present ones."""

from __future__ import annotations

from statistics import median
from typing import Any

from bigbatch.optim.lars import local_lr
from bigbatch.run import Run
from bigbatch.schedules import Baseline, goyal, legw


def baseline_of(run: Run, now: int) -> Baseline:
    """What the run was tuned with: its schedule's baseline, or its own learning rate and batch."""
    options: Any = run.schedule
    in_words: Any = getattr(options, "warmup", None)  # of `composed`, which has kinds of warm-up
    warmup = float(getattr(options, "warmup_epochs", getattr(in_words, "epochs", 0.0)))
    optimizer: Any = run.optimizer
    return Baseline(optimizer.lr, getattr(options, "baseline_batch", None) or now, warmup)


def warmup_epochs(run: Run, now: int) -> float:
    """How long the run itself warms up at its batch."""
    baseline = baseline_of(run, now)
    return legw(baseline, now).warmup_epochs if run.schedule.name == "legw" else baseline.warmup_epochs


def at(
    batch: int, baseline: Baseline, layers: dict[str, dict[str, float]], weight_decay: float, total_epochs: float | None
) -> dict[str, Any]:
    """By rule: learning rate and warm-up epochs at `batch`. `layers` has ‖w‖, trΣ and |G|² of each tensor."""
    by_legw, by_goyal = legw(baseline, batch), goyal(baseline, batch)
    linear_warmup = by_goyal.warmup_epochs if batch > baseline.global_batch else baseline.warmup_epochs
    found: dict[str, dict[str, Any]] = {
        "baseline": {
            "lr": baseline.lr,
            "global_batch": baseline.global_batch,
            "warmup_epochs": baseline.warmup_epochs,
        },
        "legw": {"lr": by_legw.lr, "warmup_epochs": by_legw.warmup_epochs},
        "linear": {"lr": by_goyal.lr, "warmup_epochs": linear_warmup},
        "lars": {
            "lr": by_goyal.lr,
            "warmup_epochs": linear_warmup,
            "trust_coefficient": trust_coefficient(batch, layers, weight_decay),
        },
    }
    for name, rule in found.items():
        if name != "baseline":
            rule["too_long"] = total_epochs is not None and rule["warmup_epochs"] > total_epochs
    return found


def trust_coefficient(batch: int, layers: dict[str, dict[str, float]], weight_decay: float) -> float | None:
    """η with which LARS moves its median layer as fast as plain SGD would: 1 / median of ‖w‖ / (‖g‖ + β‖w‖).

    ‖g‖² of a batch is |G|² + trΣ/B. Tensors of one dimension are left out, as LARS leaves them out by default.
    """
    found = []
    for layer in layers.values():
        gradient_norm = max(0.0, layer["signal"] + layer["noise"] / batch) ** 0.5
        if layer["dimensions"] > 1 and gradient_norm > 0 and layer["weight"] > 0:
            found.append(local_lr(layer["weight"], gradient_norm, 1.0, weight_decay, 0.0))
    return 1 / median(found) if found else None
