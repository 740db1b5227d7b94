"""A schedule as a torch LRScheduler for any training loop: one `step()` per batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from bigbatch.position import Position
from bigbatch.schedules.curves.checks import check_positive


class PositionLR(LRScheduler):
    """An LRScheduler that follows a schedule, any function of a position; call `step()` after each batch.

    `samples_per_epoch` is what one pass of the loader yields over all ranks (with `drop_last`, only the full
    batches); `global_batch` counts all ranks and accumulation steps. The first parameter group gets the schedule's
    learning rate, the others keep their proportion to it. Under Accelerate do not prepare it: a prepared scheduler is
    stepped once for each process.
    Loading its state, a few numbers, sets the optimizer's learning rate: optimizer and scheduler may be built and
    loaded in any order.
    """

    def __init__(
        self,
        schedule: Callable[[Position], float],
        optimizer: Optimizer,
        *,
        total_epochs: float,
        samples_per_epoch: int,
        global_batch: int,
    ) -> None:
        check_positive("total_epochs", total_epochs)
        check_positive("samples_per_epoch", samples_per_epoch)
        check_positive("global_batch", global_batch)
        self.schedule = schedule
        self.total_epochs = total_epochs
        self.samples_per_epoch = samples_per_epoch
        self.global_batch = global_batch
        self.samples = 0
        self.proportions = _lr_proportions(optimizer)
        super().__init__(optimizer)

    def step(self, epoch: int | None = None) -> None:
        """Advance by one batch. An epoch's last batch may be smaller than the rest."""
        if epoch is not None:
            raise ValueError(f"step({epoch!r}): the learning rate follows the samples seen; call step() once per batch")
        if self.last_epoch >= 0:  # torch calls step() once itself, before the first batch
            self.samples += self._next_batch_count()
        super().step()

    def change_batch(self, global_batch: int) -> None:
        """Set the size of the following batches, and the learning rate that goes with it."""
        check_positive("global_batch", global_batch)
        self.global_batch = global_batch
        self._set_group_lrs()

    def get_lr(self) -> list[float | Tensor]:
        """Return one learning rate per parameter group."""
        lr = self.schedule(self._next_position())
        return [lr * proportion for proportion in self.proportions]

    def state_dict(self) -> dict[str, Any]:
        """Return plain numbers, which `torch.load(weights_only=True)` accepts."""
        return {
            "samples": self.samples,
            "steps": self.last_epoch,
            "global_batch": self.global_batch,
            "proportions": list(self.proportions),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where the state was saved."""
        self.samples = state_dict["samples"]
        self.last_epoch = state_dict["steps"]
        self._step_count = state_dict["steps"] + 1
        self.global_batch = state_dict["global_batch"]
        self.proportions = list(state_dict["proportions"])
        self._set_group_lrs()

    def _next_batch_count(self) -> int:
        left_in_epoch = self.samples_per_epoch - self.samples % self.samples_per_epoch
        return min(self.global_batch, left_in_epoch)

    def _next_position(self) -> Position:
        middle = self.samples + self._next_batch_count() / 2
        epochs = middle / self.samples_per_epoch
        return Position(epochs, self.total_epochs, self.global_batch, self.last_epoch, self.samples)

    def _set_group_lrs(self) -> None:
        for group, lr in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            if isinstance(group["lr"], Tensor):  # compiled optimizers keep this tensor
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr
        self._last_lr = [float(group["lr"]) for group in self.optimizer.param_groups]


def _lr_proportions(optimizer: Optimizer) -> list[float]:
    lrs = [float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups]
    check_positive("the lr of the first parameter group", lrs[0])
    return [lr / lrs[0] for lr in lrs]


as_torch = PositionLR
