"""Samples and steps into epochs, and whether the budget is spent."""

from __future__ import annotations

from bigbatch.errors import Problem
from bigbatch.position import Position, Progress
from bigbatch.run import Run
from bigbatch.training.batches import Batches


class EpochCounter:
    """Converts a run's samples and steps into epochs.

    The batch may change on the way; ranks and micro-batches do not matter.
    """

    def __init__(self, run: Run, batches: Batches) -> None:
        if run.steps is not None and run.global_batch.name != "constant":
            raise Problem(
                f"a budget of {run.steps} steps has no length in epochs while the batch changes "
                f"(global_batch '{run.global_batch.name}'): use --set epochs=..."
            )
        self.run = run
        self.batches = batches

    def epochs(self, progress: Progress, global_batch: int) -> float:
        return progress.epoch + progress.offset / self.batches.epoch_samples(global_batch)

    def total_epochs(self, global_batch: int) -> float:
        if self.run.epochs is not None:
            return self.run.epochs
        assert self.run.steps is not None
        epoch_samples = self.batches.epoch_samples(global_batch)
        whole_epochs, steps = divmod(self.run.steps, -(-epoch_samples // global_batch))
        return whole_epochs + steps * global_batch / epoch_samples

    def samples_left(self, progress: Progress, global_batch: int) -> int | None:
        """Samples up to the end of the last epoch, which may be partial; None where the budget is in steps."""
        if self.run.epochs is None:
            return None
        epoch_samples = self.batches.epoch_samples(global_batch)
        return max(1, round(self.run.epochs * epoch_samples)) - progress.epoch * epoch_samples - progress.offset

    def budget_spent(self, progress: Progress, global_batch: int) -> bool:
        left = self.samples_left(progress, global_batch)
        return progress.step >= (self.run.steps or 0) if left is None else left <= 0

    def position(self, progress: Progress, global_batch: int, count: int = 0) -> Position:
        """The position in the middle of the next `count` samples."""
        return Position(
            epochs=self.epochs(progress, global_batch) + count / 2 / self.batches.epoch_samples(global_batch),
            total_epochs=self.total_epochs(global_batch),
            global_batch=global_batch,
            step=progress.step,
            samples=progress.samples,
        )
