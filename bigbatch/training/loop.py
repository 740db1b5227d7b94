"""The training loop: batch size, step, metrics, evaluation, checkpoint, in the order in which data moves."""

from __future__ import annotations

import errno
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from bigbatch import batch_sizes, engines, probes, schedules, trackers
from bigbatch.artifacts import atomic, checkpoint
from bigbatch.artifacts.checkpoint import TrainingState
from bigbatch.artifacts.folder import Folder
from bigbatch.artifacts.metrics import EvaluationMetrics, MetricsContent, MetricsWriter, StepMetrics, dump_json
from bigbatch.artifacts.summary import Summary
from bigbatch.artifacts.targets import Target, first_crossing
from bigbatch.engines import Engine
from bigbatch.errors import Diverged, Problem, Stopped
from bigbatch.launch.mirrors import mirror_metrics
from bigbatch.launch.signals import StopRequest
from bigbatch.output import progress
from bigbatch.position import Position
from bigbatch.run import Run
from bigbatch.training.assembly import AssembledRun
from bigbatch.training.batches import Batch
from bigbatch.training.evaluate import evaluate
from bigbatch.training.gradient import BatchSums
from bigbatch.training.micro_batch import choose_split, peak_rss_bytes
from bigbatch.training.micro_gradients import MicroGradients
from bigbatch.training.step import take_step

_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE)
_STEP_KEYS = {field.name for field in fields(StepMetrics)}


@dataclass(frozen=True)
class TrainOptions:
    """How a run is trained here, as opposed to what is trained: none of it changes the result."""

    data_dir: Path | None = None
    checkpoint_minutes: float = 10.0
    fresh: bool = False
    quiet: bool = True
    track: Sequence[str] = ()
    targets: Sequence[Target] = ()

    def __post_init__(self) -> None:
        if not self.checkpoint_minutes >= 0:
            raise Problem(f"--checkpoint-minutes is {self.checkpoint_minutes:g}: give the minutes between checkpoints")


def train(
    run: Run,
    *,
    runs_dir: Path | str = "runs",
    data_dir: Path | None = None,
    checkpoint_minutes: float = 10.0,
    fresh: bool = False,
    quiet: bool = True,
    track: Sequence[str] = (),
    targets: Sequence[str] = (),
) -> Summary:
    """Train a run in its folder `runs_dir/<name>-<hash>` and return its summary.

    An unfinished run continues from its last checkpoint; a finished one is not run again unless `fresh`. `track` names
    trackers that mirror the metrics. `targets` like "test_accuracy=0.98" give `summary.crossings`: the samples, steps
    and seconds after which the run first reached each.
    """
    parsed_targets = [Target.parse(target) for target in targets]
    options = TrainOptions(data_dir, checkpoint_minutes, fresh, quiet, track, parsed_targets)
    return train_in_folder(run, Folder(Path(runs_dir) / run.folder_name), options)


def train_in_folder(run: Run, folder: Folder, options: TrainOptions) -> Summary:
    """Train a run in a folder, which may be that of the same run with another engine."""
    summary = _train_or_load(run, folder, options)
    return record_crossings(folder, options.targets) if options.targets and engines.env_rank() == 0 else summary


def record_crossings(folder: Folder, targets: Sequence[Target]) -> Summary:
    """Add to summary.json where a finished run first reached each target, or null where it never did."""
    rows = list(folder.metrics())
    found = {str(target): first_crossing(rows, target) for target in targets}
    crossings = {
        name: {"samples": crossing.samples, "steps": crossing.steps, "seconds": crossing.seconds} if crossing else None
        for name, crossing in found.items()
    }
    summary = folder.summary()
    summary = replace(summary, crossings={**(summary.crossings or {}), **crossings})
    folder.write("summary.json", dump_json(summary.to_dict(), indent=2))
    return summary


def _train_or_load(run: Run, folder: Folder, options: TrainOptions) -> Summary:
    """Train, or load the summary of a run that has ended."""
    trackers.check_installed(options.track)
    engine = engines.start(run.engine)
    try:
        with folder.lock() if engine.rank == 0 else nullcontext():
            fresh = options.fresh and not engines.was_restarted()
            with (
                folder.move_aside() if fresh and engine.rank == 0 else nullcontext(),
                mirror_metrics(folder.path, options.track if engine.rank == 0 else ()),
            ):
                status = engine.broadcast(folder.status)
                if status in ("done", "diverged"):
                    return folder.summary()
                return _train_and_record(run, folder, engine, options)
    finally:
        engine.stop()


def _train_and_record(run: Run, folder: Folder, engine: Engine, options: TrainOptions) -> Summary:
    """Train, and record in the folder how the training ended, however it ended."""
    is_writer, before, training = engine.rank == 0, folder.status, None
    try:
        if is_writer:
            folder.create(run)
            folder.status = "running"
        engine.broadcast(None)  # no rank reads the folder before it exists
        with StopRequest() as stop_request:
            training = Training(run, folder, engine, options)
            try:
                summary = training.run_to_end(stop_request, options.checkpoint_minutes)
            finally:
                training.close()
    except BaseException as error:
        with suppress(Problem):  # on a full disk not even the status can be written, and the error at hand says why
            if is_writer and isinstance(error, Problem) and training is None:
                folder.status = before or "failed"  # refused before any work: the run is what it was
            elif is_writer:
                folder.status = "stopped" if isinstance(error, Stopped) else "failed"
        if isinstance(error, OSError) and error.errno in _WRITE_ERRORS:
            raise Problem(
                f"{error.filename or folder.path} could not be written ({error.strerror}): {atomic.advise(error)} "
                f"there, then 'bigbatch resume {folder.path}'"
            ) from error
        raise
    if is_writer:
        folder.write("summary.json", dump_json(summary.to_dict(), indent=2))
        folder.status = "done" if summary.diverged_at_step is None else "diverged"
    return summary


class Training(AssembledRun):
    """A run in training on one rank. Probes read it as their state."""

    batch: Batch  # of the current step
    position: Position

    def __init__(self, run: Run, folder: Folder, engine: Engine, options: TrainOptions) -> None:
        super().__init__(run, engine, data_dir=options.data_dir, folder=folder)
        self.folder = folder
        self.probes = probes.ProbeSet(run.probes)
        self.started = time.perf_counter()
        restored = self.restored
        self.global_batch = restored.global_batch if restored else 0
        self.epoch_loss_sum = restored.epoch_loss_sum if restored else 0.0
        self.seconds_in_steps = restored.seconds_in_steps if restored else 0.0
        self.earlier_seconds = restored.seconds if restored else 0.0  # before this process
        # rows of evaluations and probes: what decides a batch size
        self.history, self.history_is_intact = self._read_history()
        self.global_batch = self._next_global_batch()
        schedules.check_plan(run, self.counter.total_epochs(self.global_batch))
        self.add_optimizer(choose_split(self, folder, self.global_batch))
        self.metrics = MetricsWriter(folder.path / "metrics.jsonl") if engine.rank == 0 else None
        self.display = progress.choose_display(options.quiet or engine.rank != 0)

    def run_to_end(self, stop_request: StopRequest, checkpoint_minutes: float) -> Summary:
        """Step until the budget is spent; evaluate and save at the end of each epoch."""
        self.display.start(self.counter.total_epochs(self.global_batch), self._epochs())
        saved_at = time.monotonic()
        if not self.history_is_intact and (self.progress.offset == 0 or self._budget_spent()):
            if self.progress.offset == 0:
                self.epoch_loss_sum = math.nan  # that of the epoch was in a row that may be lost
            self._evaluate()
        while not self._budget_spent():
            save_due = time.monotonic() - saved_at >= 60 * checkpoint_minutes
            try:
                batch, stop, save = self.step(lambda: stop_request.received, save_due)
                if batch.epoch_ends or self._budget_spent():
                    self._evaluate()
                    save = True
                elif self._passed_evaluation_point(batch):
                    self._evaluate()
            except Diverged as diverged:
                return self._summarize(diverged.step)
            if save or stop:
                self.save()
                saved_at = time.monotonic()
            if stop and not self._budget_spent():
                raise Stopped(
                    f"stopped at step {self.progress.step}; 'bigbatch resume {self.folder.path}' continues it"
                )
        return self._summarize(diverged_at_step=None)

    def step(self, stop_wanted: Callable[[], bool], save_wanted: bool) -> tuple[Batch, bool, bool]:
        """Train on one global batch and record one row of metrics.

        Return the batch, and whether to stop and to save: if one rank wants to, all do.
        """
        started = time.perf_counter()
        self.global_batch = self._next_global_batch()
        left = self.counter.samples_left(self.progress, self.global_batch)
        batch = self.batch = self.batches.next(self.progress, self.global_batch, self.split, left)
        self.position = self.counter.position(self.progress, self.global_batch, batch.count)
        needs_micro_gradients = self.probes.need_micro_gradients(self.position)
        self.gradient.micro_gradients = MicroGradients(self.model) if needs_micro_gradients else None
        row: dict[str, Any] = {}
        answers: dict[str, Any] = {}
        stop = save = False

        @contextmanager
        def record(sums: BatchSums) -> Iterator[None]:
            """Sum over ranks, check the loss, let probes read both sides of the update."""
            nonlocal stop, save
            own = [float(sums.loss), float(sums.correct), sums.kept, stop_wanted(), save_wanted]
            totals = torch.tensor(own, dtype=torch.float64, device=self.engine.device)
            loss_sum, correct, kept, stops, saves = self.engine.sum(totals).tolist()
            stop, save = stops > 0, saves > 0
            metrics = StepMetrics(
                epoch=self.counter.epochs(batch.after, self.global_batch),
                samples=batch.after.samples,
                step=batch.after.step,
                train_loss=loss_sum / batch.count,
                train_accuracy=correct / batch.count,
                lr=self.optimizer.param_groups[0]["lr"],
                global_batch=batch.count,
                kept=int(kept),
            )
            row.update(asdict(metrics))
            if not math.isfinite(metrics.train_loss):
                self._record(row | {"diverged": True})
                raise Diverged(batch.after.step)
            self.epoch_loss_sum += loss_sum
            with self.probes.measure_around_step(self, self.position) as found:
                yield
            answers.update(found)

        take_step(self, batch, self.position, record)
        self._record(row | answers, remember=bool(answers))
        self.seconds_in_steps += time.perf_counter() - started
        self.display.show_step(row, self.progress.samples / self.seconds_in_steps)
        return batch, stop, save

    def save(self) -> None:
        """Write everything that an exact resume needs; all ranks learn whether rank 0 could write it."""
        hidden_state = self.gradient.forward.hidden_state
        gathered = hidden_state.gather(self.engine) if hidden_state else None
        model, optimizer_state = self.engine.full_state(self.model, self.optimizer)
        failure = None
        if self.metrics:
            state = TrainingState(
                progress=self.progress,
                global_batch=self.global_batch,
                optimizer=optimizer_state,
                hidden_state=gathered,
                epoch_loss_sum=self.epoch_loss_sum,
                seconds=self._seconds(),
                seconds_in_steps=self.seconds_in_steps,
                average=self.average.state_dict() if self.average else None,
                metrics=asdict(self.metrics.sync()),
            )
            try:
                step, run_hash = self.progress.step, self.folder.run_hash
                checkpoint.save(self.folder.checkpoints, step, run_hash, model, state.to_dict())
                self.folder.saved_step = step
            except Problem as problem:
                failure = str(problem)
        failure = self.engine.broadcast(failure)
        if failure:
            raise Problem(failure)

    def close(self) -> None:
        super().close()
        self.display.close()
        if self.metrics:
            self.metrics.close()

    def _read_history(self) -> tuple[list[dict[str, Any]], bool]:
        """Drop the rows after the checkpoint; return those of evaluations and probes, and whether none was lost.

        Every rank gets them from the first.
        """
        read: tuple[list[dict[str, Any]], bool] = ([], True)
        if self.engine.rank == 0:
            saved = self.restored.metrics if self.restored else None
            rows, intact = self.folder.rewind_metrics(self.progress.step, MetricsContent(**saved) if saved else None)
            read = [row for row in rows if row.keys() - _STEP_KEYS], intact
        shared: tuple[list[dict[str, Any]], bool] = self.engine.broadcast(read)
        return shared

    def _next_global_batch(self) -> int:
        """The global batch of the next step. Streams of text last an epoch, because of their hidden state."""
        if self.dataset.train.sequential and self.progress.offset:
            return self.global_batch
        epochs = self._epochs() if self.progress.offset else float(self.progress.epoch)
        total_epochs = self.run.epochs or math.inf  # a budget in steps has a constant batch, which does not ask
        position = Position(epochs, total_epochs, self.global_batch, self.progress.step, self.progress.samples)
        global_batch = batch_sizes.at(position, self.history, self.run.global_batch)
        world_size = self.engine.world_size
        if global_batch % world_size:
            fitting = max(global_batch - global_batch % world_size, world_size)
            raise Problem(
                f"global_batch {global_batch} does not divide over {world_size} ranks: "
                f"use another number of ranks, or --set global_batch={fitting}"
            )
        return global_batch

    def _passed_evaluation_point(self, batch: Batch) -> bool:
        """Whether the step passed one of the points that divide the epoch into `evaluations_per_epoch` parts."""
        points, epoch_samples = self.run.evaluations_per_epoch, self.batches.epoch_samples(self.global_batch)
        offset = batch.after.offset
        return points * offset // epoch_samples > points * (offset - batch.count) // epoch_samples

    def _evaluate(self) -> None:
        measures = evaluate(self)
        if self.average:
            averaged = evaluate(self, self.average.module)
            measures |= {f"{name}_ema": value for name, value in averaged.items()}
        samples_in_epoch = self.progress.offset or self.batches.epoch_samples(self.global_batch)
        row = EvaluationMetrics(
            epoch=self._epochs(),
            samples=self.progress.samples,
            step=self.progress.step,
            epoch_train_loss=self.epoch_loss_sum / samples_in_epoch,
            measures=measures,
            seconds=self._seconds(),
        ).to_row()
        if not math.isfinite(measures["test_loss"]):  # the last update diverged, and no further batch showed it
            self._record(row | {"diverged": True})
            raise Diverged(self.progress.step)
        self._record(row, remember=True)
        self.display.show_evaluation(row)
        if self.progress.offset == 0:
            self.epoch_loss_sum = 0.0

    def _record(self, row: dict[str, Any], remember: bool = False) -> None:
        if remember:
            self.history.append(row)
        if self.metrics:
            self.metrics.add(row)

    def _summarize(self, diverged_at_step: int | None) -> Summary:
        last: dict[str, Any] = next((row for row in reversed(self.history) if "test_loss" in row), {})
        return Summary(
            measures={name: value for name, value in last.items() if name.startswith("test_")},
            train_loss=last.get("epoch_train_loss"),
            diverged_at_step=diverged_at_step,
            epochs=self._epochs(),
            steps=self.progress.step,
            samples=self.progress.samples,
            seconds=round(self._seconds(), 3),
            samples_per_second=round(self.progress.samples / max(self.seconds_in_steps, 1e-9), 1),
            peak_rss_mb=round(peak_rss_bytes() / 2**20, 1),
            ranks=self.engine.world_size,
        )

    def _epochs(self) -> float:
        return self.counter.epochs(self.progress, self.global_batch)

    def _budget_spent(self) -> bool:
        return self.counter.budget_spent(self.progress, self.global_batch)

    def _seconds(self) -> float:
        return self.earlier_seconds + time.perf_counter() - self.started
