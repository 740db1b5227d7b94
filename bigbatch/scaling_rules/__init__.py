"""Scaling rules: how the options of a run follow its batch.

A part offers `rescale(run, k, config) -> list[Change]`, the changes for k times the batch: learning rate, warm-up,
betas, weight decay, EMA decay. `Run.at_batch` applies them. The epochs stay, so a rule sees k times fewer steps.

A schedule that is relative to a baseline's batch (`legw`, `goyal`, `composed` with a scaling) scales the learning rate
by itself, LEGW the warm-up too: what it scales, a rule leaves alone, and refuses to where the two disagree.

The formulas are functions of plain numbers, for any training loop.
"""

from __future__ import annotations

from math import isclose
from typing import Any

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.run import Change, Run


def half_life_decay(decay: float, k: float) -> float:
    """β to the k-th power: one step forgets what k steps forgot, so the half-life in samples stays.

    For an EMA of the weights: Busbridge et al. 2023 (arXiv 2307.13813). For Adam's β₂: Marek et al. 2025
    (arXiv 2507.07101). Linear extrapolation, 1 − k(1 − β), is negative from k = 1/(1 − β) on.
    """
    return float(decay**k)


def timescale_weight_decay(weight_decay: float, k: float, lr_factor: float) -> float:
    """λ·k/lr_factor for a decoupled weight decay: B/(lr·λ·N), its timescale as a fraction of N samples, stays.

    Weights shrink by 1 − lr·λ in each step, so they average about B/(lr·λ) samples: Wang & Aitchison 2024
    (arXiv 2405.13698), Bergsma et al. 2025 (arXiv 2505.13738).
    """
    return weight_decay * k / lr_factor


def peak_at(run: Run, global_batch: int) -> tuple[float, float]:
    """Return learning rate and epochs of the warm-up that the schedule has at a batch before any decay."""
    schedule = parts.find("schedules", run.schedule.name)
    # a schedule from outside that does not offer its peak is taken as one that does not look at the batch
    peak = schedule.peak(run, global_batch) if hasattr(schedule, "peak") else None
    return (peak.lr, peak.warmup_epochs) if peak else (run.optimizer.lr, 0.0)  # type: ignore[attr-defined]


def scale_lr(run: Run, k: float, factor: float, why: str) -> list[Change]:
    """Multiply the learning rate, unless the schedule does."""
    optimizer: Any = run.optimizer
    by_schedule = _factors_of_schedule(run, k)[0]
    if isclose(by_schedule, 1):
        return [Change("optimizer.lr", optimizer.lr, optimizer.lr * factor, why)]
    if isclose(by_schedule, factor):
        return []
    raise Problem(
        f"schedule '{run.schedule.name}' multiplies the learning rate by {by_schedule:.4g} at {k:g} times the batch, "
        f"the scaling rule by {factor:.4g}: use a schedule without a baseline_batch, like composed, or another rule"
    )


def scale_warmup(run: Run, k: float, factor: float, why: str) -> list[Change]:
    """Multiply the epochs of the warm-up, unless the schedule does or has none."""
    schedule: Any = run.schedule
    if not isclose(_factors_of_schedule(run, k)[1], 1):
        return []
    if hasattr(schedule, "warmup_epochs"):
        return [Change("schedule.warmup_epochs", schedule.warmup_epochs, schedule.warmup_epochs * factor, why)]
    epochs = getattr(getattr(schedule, "warmup", None), "epochs", 0.0)
    return [Change("schedule.warmup.epochs", epochs, epochs * factor, why)] if epochs else []


def scale_weight_decay(run: Run, k: float, lr_factor: float) -> list[Change]:
    """Keep the timescale of a decoupled weight decay. L2 is a part of the loss, which does not depend on the batch."""
    before = getattr(run.optimizer, "weight_decay", 0.0)
    if not before or not run.optimizer.decouples_weight_decay:
        return []
    after = timescale_weight_decay(before, k, lr_factor)
    return [Change("optimizer.weight_decay", before, after, "B/(lr·λ·N) stays")]


def scale_ema(run: Run, k: float) -> list[Change]:
    """Keep the half-life in samples of the average of the weights."""
    decay = run.ema_decay
    return [Change("ema_decay", decay, half_life_decay(decay, k), "k-th power: arXiv 2307.13813")] if decay else []


def _factors_of_schedule(run: Run, k: float) -> tuple[float, float]:
    """By how much the schedule itself multiplies learning rate and warm-up at k times the batch."""
    global_batch: int = run.global_batch.global_batch  # type: ignore[attr-defined]
    (lr, warmup), (scaled_lr, scaled_warmup) = (
        peak_at(run, round(batch)) for batch in (global_batch, global_batch * k)
    )
    return scaled_lr / lr, scaled_warmup / warmup if warmup else 1.0
