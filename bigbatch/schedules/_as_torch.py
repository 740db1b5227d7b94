"""A schedule as a torch LRScheduler: one `step()` a batch, in somebody's own loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from bigbatch.position import Position
from bigbatch.schedules._check import positive


class PositionLR(LRScheduler):
    """Sets the learning rate from the samples seen; what `as_torch` returns.

    Its state is a handful of numbers, the lr is recomputed from them, and loading them sets the optimizer's lr:
    it does not matter in which order optimizer and scheduler are built and loaded.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: Callable[[Position], float],
        *,
        total_epochs: float,
        samples_per_epoch: int,
        global_batch: int,
    ) -> None:
        positive("total_epochs", total_epochs)
        positive("samples_per_epoch", samples_per_epoch)
        positive("global_batch", global_batch)
        self.schedule = schedule
        self.total_epochs = total_epochs
        self.samples_per_epoch = samples_per_epoch
        self.global_batch = global_batch
        self.samples = 0
        self.proportions = _proportions(optimizer)
        super().__init__(optimizer)

    def step(self, epoch: int | None = None) -> None:
        """A batch was learned from: on to the next. An epoch's last batch may be smaller than the rest."""
        if epoch is not None:
            raise ValueError(f"step({epoch!r}): the learning rate follows the samples seen; call step() once a batch")
        if self.last_epoch >= 0:  # torch calls step() once itself, before the first batch
            self.samples += self._batch_count()
        super().step()

    def change_batch(self, global_batch: int) -> None:
        """The batches from here on have another size; the learning rate follows at once."""
        positive("global_batch", global_batch)
        self.global_batch = global_batch
        self._set_lrs()

    def get_lr(self) -> list[float | Tensor]:
        """One learning rate for each parameter group."""
        lr = self.schedule(self._position())
        return [lr * proportion for proportion in self.proportions]

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers, as `torch.load(weights_only=True)` likes them."""
        return {
            "samples": self.samples,
            "steps": self.last_epoch,
            "global_batch": self.global_batch,
            "proportions": list(self.proportions),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the state was saved."""
        self.samples = state_dict["samples"]
        self.last_epoch = state_dict["steps"]
        self._step_count = state_dict["steps"] + 1
        self.global_batch = state_dict["global_batch"]
        self.proportions = list(state_dict["proportions"])
        self._set_lrs()

    def _batch_count(self) -> int:
        left_in_epoch = self.samples_per_epoch - self.samples % self.samples_per_epoch
        return min(self.global_batch, left_in_epoch)

    def _position(self) -> Position:
        middle = self.samples + self._batch_count() / 2
        epochs = middle / self.samples_per_epoch
        return Position(epochs, self.total_epochs, self.global_batch, self.last_epoch, self.samples)

    def _set_lrs(self) -> None:
        for group, lr in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            if isinstance(group["lr"], Tensor):  # compiled optimizers hold on to this very tensor
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr
        self._last_lr = [float(group["lr"]) for group in self.optimizer.param_groups]


def _proportions(optimizer: Optimizer) -> list[float]:
    lrs = [float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups]
    positive("the lr of the first parameter group", lrs[0])
    return [lr / lrs[0] for lr in lrs]


def as_torch(
    schedule: Callable[[Position], float],
    optimizer: Optimizer,
    *,
    total_epochs: float,
    samples_per_epoch: int,
    global_batch: int,
) -> PositionLR:
    """An LRScheduler that follows a schedule, any function of a position; call `step()` after each optimizer step.

    `samples_per_epoch` is what one pass of the loader yields over all ranks (with `drop_last`, only the full
    batches); `global_batch` counts all ranks and accumulation steps. The first parameter group gets the schedule's
    lr, the others keep their proportion to it. Under Accelerate do not prepare it: a prepared scheduler is stepped
    once for each process.
    """
    return PositionLR(
        optimizer,
        schedule,
        total_epochs=total_epochs,
        samples_per_epoch=samples_per_epoch,
        global_batch=global_batch,
    )
