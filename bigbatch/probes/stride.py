"""How far a step moves weights and loss: E|Δw| over the learning rate, its sum, ΔL (Gao & Zhong 2020, Figs. 4, 5)."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.optim import Optimizer

from bigbatch import rng
from bigbatch.models import move_inputs
from bigbatch.probes.measurement import contract
from bigbatch.probes.measurement.contract import ProbeState, Row, Unmeasurable, latest_row
from bigbatch.probes.measurement.objective import Loss, Objective, call_model, dot, trainable_parameters
from bigbatch.probes.measurement.probed_model import fixed_objective, run_loss
from bigbatch.probes.measurement.read_only import Mode, preserve_model
from bigbatch.probes.measurement.record import Record, to_json


class Config(contract.Config):
    losses: bool = True  # also the loss on both sides of the step
    full_samples: PositiveInt = 128  # fixed samples that stand for the full data


@dataclass(frozen=True)
class LossFall(Record):
    before: float
    after: float
    fall: float
    normalised: float | None  # by the learning rate


@dataclass
class StrideMeasurement(Record):
    """Filled when the step has been taken."""

    OMIT_IF_NONE = ("same_batch", "full_data")

    stride: float = math.nan
    normalised: float | None = None  # by the learning rate
    lr: float = math.nan
    layers: dict[str, float] = field(default_factory=dict)
    first_order: float | None = None
    same_batch: LossFall | None = None
    full_data: LossFall | None = None


def measure(state: ProbeState, config: Config) -> Generator[None, None, Row]:
    before = _copy_weights(state.model)
    losses_before = _measure_losses(state, config)
    yield
    found = StrideMeasurement()
    _fill_weight_strides(found, state.model, before, float(state.optimizer.param_groups[0]["lr"]))
    _fill_loss_strides(found, losses_before, _measure_losses(state, config))
    return {**to_json(found), **_accumulate(found.stride, found.lr, state, config)}


@contextmanager
def stride(
    model: nn.Module,
    optimizer: Optimizer,
    loss: Loss | None = None,
    same: tuple[Any, Any] | None = None,
    full: tuple[Any, Any] | None = None,
    *,
    mode: Mode = None,
) -> Iterator[StrideMeasurement]:
    """Around `optimizer.step()`; the measurement is filled when the block ends.

    `stride` E|Δw| over all weights and `layers` for each tensor; `normalised` by the learning rate (eq. 6).
    `first_order` is −g·Δw with the gradient in `.grad`, the first-order fall of the loss on the batch: for SGD lr·|g|².
    With a loss: `same_batch`, how much it falls on the (inputs, targets) of the step, and `full_data`, on others
    that stand for all. Eq. 8's lr·σ²/n is only the noise part of the first, which is lr·(|G|² + trΣ/n) on
    average; the second falls by lr·|G|², whatever n. Dropout masks are the same before and after.
    """
    samples = {"same_batch": same, "full_data": full} if loss else {}

    def measure_losses() -> dict[str, float]:
        with preserve_model(model, mode):
            return {key: Objective(model, loss, *given).value() for key, given in samples.items() if loss and given}

    before, losses_before = _copy_weights(model), measure_losses()
    found = StrideMeasurement()
    yield found
    _fill_weight_strides(found, model, before, float(optimizer.param_groups[0]["lr"]))
    _fill_loss_strides(found, losses_before, measure_losses())


def _copy_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in trainable_parameters(model).items()}


@torch.no_grad()
def _fill_weight_strides(found: StrideMeasurement, model: nn.Module, before: dict[str, Tensor], lr: float) -> None:
    now = trainable_parameters(model)
    moves = {name: now[name] - old for name, old in before.items()}
    sums = {name: float(move.abs().sum(dtype=torch.float64)) for name, move in moves.items()}
    gradients = {name: gradient for name in moves if (gradient := now[name].grad) is not None}
    found.lr = lr
    found.stride = sum(sums.values()) / sum(move.numel() for move in moves.values())
    found.normalised = found.stride / lr if lr else None
    found.layers = {name: sums[name] / move.numel() for name, move in moves.items()}
    if gradients:
        found.first_order = -dot(list(gradients.values()), [moves[name] for name in gradients])


def _fill_loss_strides(found: StrideMeasurement, before: dict[str, float], after: dict[str, float]) -> None:
    for key, value in before.items():
        if not (math.isfinite(value) and math.isfinite(after[key])):
            raise Unmeasurable("the loss is not finite next to this step: train with a lower learning rate")
        fall = value - after[key]
        setattr(found, key, LossFall(value, after[key], fall, fall / found.lr if found.lr else None))


# -- during training


def _measure_losses(state: ProbeState, config: Config) -> dict[str, float]:
    if not config.losses:
        return {}
    with preserve_model(state.model), torch.no_grad():
        return {
            "same_batch": _measure_batch_loss(state),
            "full_data": fixed_objective(state, config.full_samples).value(),
        }


def _measure_batch_loss(state: ProbeState) -> float:
    """The batch as in the step: same augmentation, groups and masks; text without its hidden state."""
    total = torch.zeros((), dtype=torch.float64, device=state.engine.device)
    samples = state.batches.samples(state.batch.global_batch)
    for micro_batch in state.batch.by_rank[state.engine.rank]:
        indices = state.batch.indices[micro_batch.start : micro_batch.stop]
        inputs, targets = samples.fetch(indices, seed=state.run.seed, epoch=state.batch.epoch)
        rng.seed_torch(state.run.seed, state.batch.after.step, micro_batch.start, rng.DROPOUT)
        with state.gradient.forward.autocast():
            outputs = call_model(state.model, move_inputs(inputs, state.model, state.engine.device))
        total += run_loss(outputs, targets.to(state.engine.device), state.run.loss).sum(dtype=torch.float64)
    return float(state.engine.sum(total)) / state.batch.count


def _accumulate(stride_now: float, lr: float, state: ProbeState, config: Config) -> Row:
    """The epoch's mean stride, and the sum over all steps, the paper's search space: each measured step stands for
    those up to the next one. Rows hold the sums, so that a resumed training continues them."""
    epoch = state.batch.epoch
    earlier = latest_row(state.history, "stride")
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
