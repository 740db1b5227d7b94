"""The learning rate and the warm-up at another batch, by LEGW, linear scaling and LARS."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from bigbatch.optim.lars import local_lr
from bigbatch.probes.measurement.record import Record
from bigbatch.run import Run
from bigbatch.schedules import Baseline, goyal, legw


def baseline_of(run: Run, now: int) -> Baseline:
    """The settings that the run was tuned with: its schedule's baseline, or its own learning rate and batch."""
    options: Any = run.schedule
    composed_warmup: Any = getattr(options, "warmup", None)  # of `composed`, which has kinds of warm-up
    warmup = float(getattr(options, "warmup_epochs", getattr(composed_warmup, "epochs", 0.0)))
    optimizer: Any = run.optimizer
    return Baseline(optimizer.lr, getattr(options, "baseline_batch", None) or now, warmup)


def warmup_epochs(run: Run, now: int) -> float:
    """How long the run itself warms up at its batch."""
    baseline = baseline_of(run, now)
    return legw(baseline, now).warmup_epochs if run.schedule.name == "legw" else baseline.warmup_epochs


@dataclass(frozen=True)
class TensorSummary(Record):
    """One tensor: ‖w‖, ‖g‖ of the present batch, their quotient, its own noise scale and its stride."""

    name: str
    dimensions: int
    elements: int
    weight: float
    gradient: float
    ratio: float | None
    noise_scale: float | None
    stride: float | None
    noise: float
    signal: float


@dataclass(frozen=True)
class ScaledSchedule(Record):
    """The learning rate and the warm-up at one batch."""

    OMIT_IF_NONE = ("global_batch", "trust_coefficient", "too_long")

    lr: float
    warmup_epochs: float
    global_batch: int | None = None  # of the baseline
    too_long: bool | None = None  # whether the warm-up is longer than the training
    trust_coefficient: float | None = None  # of LARS


def scale_schedule(
    batch: int,
    baseline: Baseline,
    layers: Iterable[TensorSummary] | None,
    weight_decay: float,
    total_epochs: float | None,
) -> dict[str, ScaledSchedule]:
    """Learning rate and warm-up epochs at `batch`, by each rule; LARS only with layers, where the learning rate is that
    of a plain gradient."""
    by_legw, by_goyal = legw(baseline, batch), goyal(baseline, batch)
    linear_warmup = by_goyal.warmup_epochs if batch > baseline.global_batch else baseline.warmup_epochs

    def rule(lr: float, warmup: float, trust: float | None = None) -> ScaledSchedule:
        return ScaledSchedule(lr, warmup, None, total_epochs is not None and warmup > total_epochs, trust)

    rules = {
        "baseline": ScaledSchedule(baseline.lr, baseline.warmup_epochs, baseline.global_batch),
        "legw": rule(by_legw.lr, by_legw.warmup_epochs),
        "linear": rule(by_goyal.lr, linear_warmup),
    }
    if layers is not None:
        rules["lars"] = rule(by_goyal.lr, linear_warmup, trust_coefficient(batch, layers, weight_decay))
    return rules


def trust_coefficient(batch: int, layers: Iterable[TensorSummary], weight_decay: float) -> float | None:
    """η with which LARS moves its median layer as fast as plain SGD would: 1 / median of ‖w‖ / (‖g‖ + β‖w‖).

    ‖g‖² of a batch is |G|² + trΣ/B. Tensors of one dimension are left out, as LARS leaves them out by default.
    """
    found = []
    for layer in layers:
        gradient_norm = max(0.0, layer.signal + layer.noise / batch) ** 0.5
        if layer.dimensions > 1 and gradient_norm > 0 and layer.weight > 0:
            found.append(local_lr(layer.weight, gradient_norm, 1.0, weight_decay, 0.0))
    return 1 / median(found) if found else None
