"""How far a step moves weights and loss: E|Δw| over the lr and its sum, ΔL (Gao & Zhong 2020, Figs. 4, 5 and 7)."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import Optimizer

from bigbatch import probes, rng
from bigbatch.models import move_inputs
from bigbatch.probes._contract import last, plain
from bigbatch.probes._data import fixed_objective, run_loss
from bigbatch.probes._objective import Loss, Objective, call, dot, trainable
from bigbatch.probes._untouched import Mode, untouched


class Config(probes.Config):
    losses: bool = True  # also the loss on both sides of the step
    full_samples: int = Field(128, gt=0)  # fixed samples that stand for the full data


def measure(state: probes.State, config: Config) -> Generator[None, None, dict[str, Any]]:
    before = _weights(state.model)
    losses_before = _losses(state, config) if config.losses else {}
    yield
    lr = float(state.optimizer.param_groups[0]["lr"])
    found = _moved(state.model, before, lr)
    if config.losses:
        found |= _loss_strides(losses_before, _losses(state, config), lr)
    return found | _so_far(found["stride"], lr, state, config)


@contextmanager
def stride(
    model: nn.Module,
    optimizer: Optimizer,
    loss: Loss | None = None,
    same: tuple[Any, Any] | None = None,
    full: tuple[Any, Any] | None = None,
    *,
    mode: Mode = None,
) -> Iterator[dict[str, Any]]:
    """Around `optimizer.step()`; the dict is filled when the block ends.

    `stride` E|Δw| over all weights and `layers` for each tensor; `normalised` by the lr (eq. 6). `first_order` is
    −g·Δw with the gradient in `.grad`, what the loss on the batch falls by to first order: for SGD lr·|g|².
    With a loss: `same_batch`, how much it falls on the (inputs, targets) just learned from, and `full_data`, on others
    that stand for all. Eq. 8's lr·σ²/n is the noise part of the first alone, which is lr·(|G|² + trΣ/n) in the
    mean; the second falls by lr·|G|², whatever n. Dropout masks are the same before and after.
    """
    samples = {"same_batch": same, "full_data": full} if loss else {}

    def measured() -> dict[str, float]:
        with untouched(model, mode):
            return {key: Objective(model, loss, *given).value() for key, given in samples.items() if loss and given}

    before, losses_before = _weights(model), measured()
    found: dict[str, Any] = {}
    yield found
    lr = float(optimizer.param_groups[0]["lr"])
    found.update(plain(_moved(model, before, lr) | _loss_strides(losses_before, measured(), lr)))


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in trainable(model).items()}


@torch.no_grad()
def _moved(model: nn.Module, before: dict[str, Tensor], lr: float) -> dict[str, Any]:
    now = trainable(model)
    moves = {name: now[name] - old for name, old in before.items()}
    sums = {name: float(move.abs().sum(dtype=torch.float64)) for name, move in moves.items()}
    known = [name for name in moves if now[name].grad is not None]
    whole = sum(sums.values()) / sum(move.numel() for move in moves.values())
    slopes: list[Tensor] = [gradient for name in known if (gradient := now[name].grad) is not None]
    return {
        "stride": whole,
        "normalised": whole / lr if lr else None,
        "lr": lr,
        "layers": {name: sums[name] / move.numel() for name, move in moves.items()},
        "first_order": -dot(slopes, [moves[name] for name in known]) if known else None,
    }


def _loss_strides(before: dict[str, float], after: dict[str, float], lr: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in before.items():
        if not (math.isfinite(value) and math.isfinite(after[key])):
            raise probes.Unmeasurable("the loss is not finite beside this step: train with a lower learning rate")
        fall = value - after[key]
        found[key] = {"before": value, "after": after[key], "fall": fall, "normalised": fall / lr if lr else None}
    return found


# -- during a training


def _losses(state: probes.State, config: Config) -> dict[str, float]:
    with untouched(state.model), torch.no_grad():
        return {
            "same_batch": _batch_loss(state),
            "full_data": fixed_objective(state, config.full_samples).value(),
        }


def _batch_loss(state: probes.State) -> float:
    """The batch as it was learned from: same augmentation, groups and masks; text without its carried state."""
    total = torch.zeros((), dtype=torch.float64, device=state.engine.device)
    samples = state.batches.samples(state.batch.global_batch)
    for piece in state.batch.by_rank[state.engine.rank]:
        indices = state.batch.indices[piece.start : piece.stop]
        inputs, targets = samples.fetch(indices, seed=state.run.seed, epoch=state.batch.epoch)
        rng.seed_torch(state.run.seed, state.batch.after.step, piece.start, rng.DROPOUT)
        with state.gradient.forward.autocast():
            outputs = call(state.model, move_inputs(inputs, state.model, state.engine.device))
        total += run_loss(outputs, targets.to(state.engine.device)).sum(dtype=torch.float64)
    return float(state.engine.sum(total)) / state.batch.count


def _so_far(stride_now: float, lr: float, state: probes.State, config: Config) -> dict[str, Any]:
    """The epoch's mean stride, and the sum over all steps, the paper's search space: each measured step stands for
    those up to the next one. Rows carry the sums, so that a resumed training goes on with them."""
    epoch = state.batch.epoch
    earlier = last(state.history, "stride")
    same_epoch = earlier if earlier and earlier["epoch"] == epoch else None
    steps = (same_epoch["epoch_steps"] if same_epoch else 0) + 1
    summed = (same_epoch["epoch_stride"] * same_epoch["epoch_steps"] if same_epoch else 0.0) + stride_now
    normalised = (same_epoch["epoch_normalised"] * same_epoch["epoch_steps"] if same_epoch else 0.0) + (
        stride_now / lr if lr else 0.0
    )
    return {
        "epoch": epoch,
        "epoch_steps": steps,
        "epoch_stride": summed / steps,
        "epoch_normalised": normalised / steps,
        "search_space": (earlier["search_space"] if earlier else 0.0) + stride_now * config.every_steps,
    }
