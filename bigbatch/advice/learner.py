"""A model that learns for the sake of measuring: a copy of somebody's module, or a run that leaves no files."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bigbatch import optim, parts, rng
from bigbatch.advice.data import OnDevice, gathered
from bigbatch.errors import Problem
from bigbatch.probes.measurement.objective import Loss, trainable_parameters
from bigbatch.probes.measurement.probed_model import ProbedModel
from bigbatch.probes.measurement.read_only import preserve_model, preserve_tensors
from bigbatch.probes.measurement.samples import TensorSamples
from bigbatch.schedules import Baseline
from bigbatch.training import batchnorm


class Learner:
    """What advice is asked about. Batches are full ones: what is left at the end of an epoch is skipped."""

    of: str
    subject: ProbedModel
    optimizer: Optimizer
    device: torch.device
    now: int  # the present global batch
    data_cap: int  # the largest batch that there are samples for
    piece: int | None  # how many samples BatchNorm normalises over; None: no BatchNorm, any piece will do
    in_one_piece: bool  # a batch is run as a whole, so that memory limits it
    micro_batch: int | None = None  # what larger batches are cut into; None where they are not
    baseline: Baseline
    warmup_epochs: float  # at the present batch
    samples_per_epoch: int
    total_samples: float | None  # of the whole training, where that is known
    steps: int = 0  # of the whole training so far
    samples: int = 0

    def __init__(self) -> None:
        self.notes: list[str] = []

    @property
    def model(self) -> nn.Module:
        return self.subject.model

    @property
    def epochs(self) -> float:
        return self.samples / self.samples_per_epoch

    @property
    def warm(self) -> bool:
        return self.epochs >= self.warmup_epochs

    def lr(self) -> float:
        """The learning rate of the next step at the present batch."""
        raise NotImplementedError

    def elsewhere(self, number: int) -> None:
        """Go on at another place of the data; the same number is the same place."""
        raise NotImplementedError

    def _differentiate(self, batch: int) -> tuple[float, Callable[[], Tensor] | None]:
        """The next batch's gradient into `.grad`; its loss, and a closure for optimizers that want one."""
        raise NotImplementedError

    def _place(self) -> Any:
        raise NotImplementedError

    def _go_to(self, place: Any) -> None:
        raise NotImplementedError

    def step(self, batch: int, lr: float | None = None) -> float:
        """Learn from the next batch of this size; gives its loss."""
        wanted = self.lr() if lr is None else lr
        for group in self.optimizer.param_groups:
            group["lr"] = wanted
        self.optimizer.zero_grad(set_to_none=True)
        loss, closure = self._differentiate(batch)
        if not math.isfinite(loss):
            raise Problem(
                f"the loss was not finite at step {self.steps + 1} with lr {wanted:g}: give a lower learning rate, "
                f"or check the model and its data"
            )
        if closure:
            self.optimizer.step(closure)  # type: ignore[arg-type]
        else:
            self.optimizer.step()
        self.steps += 1
        self.samples += batch
        return loss

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Within it steps may be taken; afterwards weights, optimizer and place are what they were."""
        before = copy.deepcopy(self.optimizer.state_dict()), self.steps, self.samples, self._place()
        with preserve_tensors([*self.model.parameters(), *self.model.buffers()]):
            try:
                yield
            finally:
                state, self.steps, self.samples, place = before
                self.optimizer.load_state_dict(state)
                self.optimizer.zero_grad(set_to_none=True)
                self._go_to(place)

    @property
    def counts_cpu_seconds(self) -> bool:
        """One thread that waits for nothing: its CPU seconds are what a quiet machine would take. On a busy one a long
        step is interrupted more than a short one, and seconds on the wall would make large batches look slow."""
        return self.device.type == "cpu" and torch.get_num_threads() == 1

    def clock(self) -> float:
        """Seconds for step times. A GPU is waited for: what was asked of it may still be running."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.process_time() if self.counts_cpu_seconds else time.perf_counter()

    def close(self) -> None:
        """Nothing is held open."""


class ModuleLearner(Learner):
    """A copy of any module, taught by a plain loop: one forward and backward pass a batch."""

    in_one_piece = True

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        data: Any,
        *,
        optimizer: Any,
        lr: float | None,
        batch: int,
        warmup_epochs: float,
        epochs: float | None,
        seed: int,
    ) -> None:
        super().__init__()
        trainable_parameters(model)
        self.of = type(model).__name__
        own = _copied(model).train()
        self.device = next(own.parameters()).device
        samples, note = gathered(data)
        self.notes += note
        self._in_memory = isinstance(samples, TensorSamples)  # a Dataset may wait for files
        self.subject = ProbedModel(own, loss, OnDevice(samples, self.device), seed)
        self.data_cap = self.samples_per_epoch = len(samples)
        if not 1 <= batch <= self.data_cap:
            raise Problem(f"batch {batch} is not between 1 and the {self.data_cap} samples: give another batch")
        self.now = batch
        self.piece = batch if batchnorm.layers(own) else None
        self.optimizer = _optimizer(optimizer, lr, own)
        self._lr = float(self.optimizer.param_groups[0]["lr"])
        self.baseline = Baseline(self._lr, batch, warmup_epochs)
        self.warmup_epochs = warmup_epochs
        self.total_samples = None if epochs is None else epochs * self.samples_per_epoch
        self._epoch = self._offset = 0
        self._check_loss()

    @property
    def counts_cpu_seconds(self) -> bool:
        return super().counts_cpu_seconds and self._in_memory

    def lr(self) -> float:
        ramp = (self.samples + self.now / 2) / self.samples_per_epoch
        return self._lr if ramp >= self.warmup_epochs else self._lr * ramp / self.warmup_epochs

    def elsewhere(self, number: int) -> None:
        self._epoch, self._offset = self._epoch + 1 + number, 0

    def _differentiate(self, batch: int) -> tuple[float, Callable[[], Tensor] | None]:
        if self._offset + batch > self.samples_per_epoch:
            self._epoch, self._offset = self._epoch + 1, 0
        order = rng.permutation(self.samples_per_epoch, self.subject.seed, self._epoch, rng.ORDER)
        chosen = order[self._offset : self._offset + batch]
        self._offset += batch
        objective = self.subject.objective(chosen, self.steps)
        ((losses, _),) = objective.micro_batch_losses()
        if not losses.requires_grad:
            raise Problem("the loss does not depend on the model's parameters: check that it is made of model(inputs)")
        losses.mean().backward()
        return float(losses.detach().mean()), None

    def _place(self) -> Any:
        return self._epoch, self._offset

    def _go_to(self, place: Any) -> None:
        self._epoch, self._offset = place

    def _check_loss(self) -> None:
        """A loss that adds samples up would make every gradient in proportion to the batch."""
        once = self.subject.fixed_indices(8)
        with preserve_model(self.model, "eval"):
            value, twice = (self.subject.objective(chosen).value() for chosen in (once, torch.cat([once, once])))
        if not math.isfinite(value):
            raise Problem("the loss is not finite at the model's present weights: check the model and its data")
        if abs(value) > 1e-12 and abs(twice / value - 2) < 1e-3:
            raise Problem(
                "the loss adds its samples up (twice the samples give twice the loss): return the mean over samples, "
                "or one loss a sample as reduction='none' does"
            )


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:  # whatever a module's own __deepcopy__ may raise
        raise Problem(
            f"{type(model).__name__} cannot be copied ({error}), and advice trains a copy: "
            f"give a module that copy.deepcopy takes"
        ) from error


def _optimizer(optimizer: Any, lr: float | None, model: nn.Module) -> Optimizer:
    """By a name or dict of options as in a run, or by a callable over parameters, like torch.optim.AdamW."""
    options = {} if lr is None else {"lr": lr}
    if isinstance(optimizer, str | dict | parts.Config):
        about = {"name": optimizer} if isinstance(optimizer, str) else optimizer
        config = parts.configure("optim", about | options if isinstance(about, dict) else about)
        made = optim.build(config, list(model.named_parameters()))
    elif callable(optimizer):
        made = partial(optimizer, **options)(model.parameters())
    else:
        raise Problem(f"optimizer {optimizer!r} is neither a name nor a class: give one, like 'momentum' or AdamW")
    if getattr(made, "needs_closure", False):
        raise Problem("this optimizer differentiates the loss by itself: give another to measure with, like 'momentum'")
    return made
