"""How far a step moves weights and loss: E|Δw| over the learning rate, its sum, ΔL (Gao & Zhong 2020, Figs. 4, 5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from pydantic import PositiveInt
from torch import nn
from torch.optim import Optimizer

from bigbatch import rng
from bigbatch.models import move_inputs
from bigbatch.probes.measurement.contract import ProbeConfig, ProbeState, Row, Unmeasurable, latest_row
from bigbatch.probes.measurement.objective import (
    Loss,
    Objective,
    call_model,
    dot,
    fixed_objective,
    run_loss,
    trainable_parameters,
)
from bigbatch.probes.measurement.read_only import Mode, preserve_model
from bigbatch.probes.measurement.record import Record, to_json


class Config(ProbeConfig):
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
    with _measure_around_step(state.model, state.optimizer, partial(_measure_losses, state, config)) as found:
        yield
    return {**to_json(found), **_accumulate(found.stride, found.lr, state, config)}


def stride(
    model: nn.Module,
    optimizer: Optimizer,
    loss: Loss | None = None,
    same: tuple[Any, Any] | None = None,
    full: tuple[Any, Any] | None = None,
    *,
    mode: Mode = None,
) -> AbstractContextManager[StrideMeasurement]:
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

    return _measure_around_step(model, optimizer, measure_losses)


@contextmanager
def _measure_around_step(
    model: nn.Module, optimizer: Optimizer, measure_losses: Callable[[], dict[str, float]]
) -> Iterator[StrideMeasurement]:
    before = {name: parameter.detach().clone() for name, parameter in trainable_parameters(model).items()}
    losses_before = measure_losses()
    found = StrideMeasurement()
    yield found
    now = trainable_parameters(model)
    lr = found.lr = float(optimizer.param_groups[0]["lr"])
    with torch.no_grad():
        moves = {name: now[name] - old for name, old in before.items()}
        sums = {name: float(move.abs().sum(dtype=torch.float64)) for name, move in moves.items()}
        gradients = {name: gradient for name in moves if (gradient := now[name].grad) is not None}
        found.stride = sum(sums.values()) / sum(move.numel() for move in moves.values())
        found.normalised = found.stride / lr if lr else None
        found.layers = {name: sums[name] / move.numel() for name, move in moves.items()}
        if gradients:
            found.first_order = -dot(list(gradients.values()), [moves[name] for name in gradients])
    for key, after in measure_losses().items():
        fall = losses_before[key] - after
        if not math.isfinite(fall):
            raise Unmeasurable("the loss is not finite next to this step: train with a lower learning rate")
        setattr(found, key, LossFall(losses_before[key], after, fall, fall / lr if lr else None))


# -- during training


def _measure_losses(state: ProbeState, config: Config) -> dict[str, float]:
    """On the batch as in the step (augmentation, groups, masks; text without hidden state), and on fixed samples."""
    if not config.losses:
        return {}
    total = torch.zeros((), dtype=torch.float64, device=state.engine.device)
    samples = state.batches.samples(state.batch.global_batch)
    with preserve_model(state.model), torch.no_grad():
        for micro_batch in state.batch.by_rank[state.engine.rank]:
            indices = state.batch.indices[micro_batch.start : micro_batch.stop]
            inputs, targets = samples.fetch(indices, seed=state.run.seed, epoch=state.batch.epoch)
            rng.seed_torch(state.run.seed, state.batch.after.step, micro_batch.start, rng.DROPOUT)
            with state.gradient.forward.autocast():
                outputs = call_model(state.model, move_inputs(inputs, state.model, state.engine.device))
            total += run_loss(outputs, targets.to(state.engine.device), state.run.loss).sum(dtype=torch.float64)
        same_batch = float(state.engine.sum(total)) / state.batch.count
        return {"same_batch": same_batch, "full_data": fixed_objective(state, config.full_samples).value()}


def _accumulate(stride_now: float, lr: float, state: ProbeState, config: Config) -> Row:
    """The epoch's mean stride, and the sum over all steps, the paper's search space: each measured step stands for
    those up to the next one. Rows hold the sums, so that a resumed training continues them."""
    epoch = state.batch.epoch
    earlier = latest_row(state.history, "stride")
    before = {"epoch_steps": 0, "epoch_stride": 0.0, "epoch_normalised": 0.0}
    if earlier and earlier["epoch"] == epoch:
        before = earlier
    steps = before["epoch_steps"] + 1
    summed = before["epoch_stride"] * before["epoch_steps"] + stride_now
    normalised = before["epoch_normalised"] * before["epoch_steps"] + (stride_now / lr if lr else 0.0)
    return {
        "epoch": epoch,
        "epoch_steps": steps,
        "epoch_stride": summed / steps,
        "epoch_normalised": normalised / steps,
        "search_space": (earlier["search_space"] if earlier else 0.0) + stride_now * config.every_steps,
    }
