"""A run that learns for the sake of measuring: its own model, data, optimizer and schedule, and no files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from bigbatch import engines, schedules
from bigbatch.advice import learning_rates
from bigbatch.advice.learner import Learner
from bigbatch.artifacts.folder import Folder
from bigbatch.engines import fit_run
from bigbatch.position import Position
from bigbatch.probes.measurement.probed_model import ProbedModel
from bigbatch.probing.run_at_rest import RunAtRest
from bigbatch.run import Run
from bigbatch.training import batchnorm, micro_batch
from bigbatch.training.batches import Split
from bigbatch.training.micro_batch import split_at_rest

_PLAIN = ("sgd", "momentum", "nesterov", "lars")


class RunLearner(Learner):
    """A recipe as training begins with it, or a run's folder at its newest checkpoint, which is only read."""

    in_one_piece = False

    def __init__(self, run: Run, folder: Folder | None, data_dir: Path | None) -> None:
        super().__init__()
        self.run = fit_run(run)
        engine = engines.start(self.run.engine)
        self.of = str(folder.path) if folder else run.name
        self.standing = RunAtRest(self.run, engine, folder, data_dir)
        self._folder = folder
        self.device = engine.device
        self.subject = ProbedModel.of_run(self.standing)
        self.optimizer = self.standing.optimizer
        self.now = self.standing.batch.global_batch
        batches = self.standing.batches
        self.samples_per_epoch = batches.epoch_samples(self.now)
        self.data_cap = self.samples_per_epoch
        self._text = batches.dataset.task == "language"
        self._streams = self.now
        self.progress = self.standing.progress
        self.steps, self.samples = self.progress.step, self.progress.samples
        self._fastest_micro_batch: int | None = None
        self._has_batchnorm = bool(batchnorm.layers(self.model))
        self.piece = self._micro_batch(self.now) if self._has_batchnorm else None
        self.micro_batch = self._micro_batch(self.now)
        self.baseline = learning_rates.baseline_of(self.run, self.now)
        self.warmup_epochs = learning_rates.warmup_epochs(self.run, self.now)
        self.total_epochs = self.standing.counter.total_epochs(self.now)
        self.total_samples = self.total_epochs * self.samples_per_epoch
        self.notes += self._notes()

    @property
    def counts_cpu_seconds(self) -> bool:
        waits_for_files = self.standing.batches.dataset.train.lazy
        return super().counts_cpu_seconds and not waits_for_files

    def lr(self) -> float:
        epochs = min((self.samples + self.now / 2) / self.samples_per_epoch, self.total_epochs)
        position = Position(epochs, self.total_epochs, self.now, self.steps, self.samples)
        return float(schedules.lr(position, self.run))

    def elsewhere(self, number: int) -> None:
        offset = number * self.now if self._text and number * self.now < self.samples_per_epoch // 2 else 0
        self.progress = replace(self.progress, epoch=self.progress.epoch + 1 + number, offset=offset)
        self.standing.gradient.forward.hidden_state = None

    def find_micro_batch(self, largest_batch: int) -> None:
        """As `micro_batch=auto` does for a training; BatchNorm's groups and what the run says are left alone."""
        if not self._has_batchnorm and self.run.micro_batch == "auto":
            self._fastest_micro_batch = micro_batch.choose(largest_batch, self._seconds_for)
            self.micro_batch = self._fastest_micro_batch

    def _seconds_for(self, count: int) -> float:
        """By the clock that steps are timed with: another one might prefer another micro-batch."""
        started = self.clock()
        self.standing.gradient.forward.time_trial(count, self.now)
        return self.clock() - started

    def close(self) -> None:
        self.standing.close()

    def _differentiate(self, batch: int) -> tuple[float, Callable[[], Tensor] | None]:
        gradient, batches = self.standing.gradient, self.standing.batches
        other_streams = self._text and batch != self._streams
        if other_streams or batches.epoch_samples(batch) - self.progress.offset < batch:
            self.progress = replace(self.progress, epoch=self.progress.epoch + 1, offset=0)
            gradient.forward.hidden_state = None
        self._streams = batch
        split = Split(1, self._micro_batch(batch), whole_groups=self._has_batchnorm)
        coming = batches.next(self.progress, batch, split)
        if batches.dataset.train.lazy:
            gradient.forward.prefetch([coming, batches.next(coming.after, batch, split)], 0)
        sums = gradient.compute(coming, self.standing.position)
        self.progress = coming.after
        wants_closure = getattr(self.optimizer, "needs_closure", False)
        return float(sums.loss) / coming.count, partial(gradient.mean_loss, coming) if wants_closure else None

    def _micro_batch(self, batch: int) -> int:
        if self._fastest_micro_batch:
            return min(self._fastest_micro_batch, batch)
        return split_at_rest(self.standing, self._folder, batch).micro_batch

    def _place(self) -> Any:
        return self.progress, self._streams

    def _go_to(self, place: Any) -> None:
        self.progress, self._streams = place
        self.standing.gradient.forward.hidden_state = None

    def _notes(self) -> list[str]:
        found = []
        if self._text:
            found.append("text is measured in single windows, each from an empty state; a training carries it on")
        if self.run.selector.name != "all":
            found.append(
                f"the noise scale is that of all samples, though selector '{self.run.selector.name}' learns from some"
            )
        if self.run.optimizer.name not in _PLAIN:
            found.append(
                f"the noise scale is that of the plain gradient; optimizer '{self.run.optimizer.name}' bends it first"
            )
        if self.run.global_batch.name != "constant":
            found.append(f"the batch changes over this training; {self.now} is what it has here")
        if self.steps and self.epochs >= self.total_epochs:
            found.append(
                "this is the end of the training, where the noise scale is usually at its largest: for the whole of it "
                "ask about the recipe, or look at the noise scale over training"
            )
        return found
