"""The loop: the one place where the parts of a run meet, in the order in which data moves."""

from __future__ import annotations

import errno
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bigbatch import batch_sizes, datasets, engines, filters, models, optim, probes, rng, schedules, trackers
from bigbatch.artifacts import checkpoint
from bigbatch.artifacts.folder import Folder
from bigbatch.artifacts.metrics import MetricsWriter, dump_json
from bigbatch.engines import Engine
from bigbatch.errors import Diverged, Problem, Stopped
from bigbatch.launch.signals import StopRequest
from bigbatch.output import progress
from bigbatch.position import Position, Progress
from bigbatch.run import Run
from bigbatch.training.batches import Batch, Batches, Split
from bigbatch.training.evaluate import evaluate
from bigbatch.training.gradient import GlobalGradient, MicroGradients
from bigbatch.training.hidden_state import HiddenState
from bigbatch.training.micro_batch import peak_rss_bytes
from bigbatch.training.progress import Clock
from bigbatch.training.split import choose_split

_STEP_KEYS = {"epoch", "samples", "step", "train_loss", "train_accuracy", "lr", "global_batch", "kept"}


def train(
    run: Run,
    *,
    runs_dir: Path | str = "runs",
    folder: Folder | None = None,
    data_dir: Path | None = None,
    checkpoint_minutes: float = 10.0,
    fresh: bool = False,
    quiet: bool = True,
    track: Sequence[str] = (),
) -> dict[str, Any]:
    """Train a run in its folder and return its summary.

    What is unfinished there goes on from its last checkpoint, what is done is not done again. `folder` is for a
    resumed run, which stays where it is whatever engine it goes on with. `track` names trackers that mirror the
    metrics elsewhere.
    """
    trackers.check(track)
    folder = folder or Folder(Path(runs_dir) / run.folder_name)
    engine = engines.start(run.engine)
    try:
        with folder.lock() if engine.rank == 0 else nullcontext():
            fresh = fresh and not engines.restarted()
            with (
                folder.move_aside() if fresh and engine.rank == 0 else nullcontext(),
                trackers.mirrored(folder.path, track if engine.rank == 0 else ()),
            ):
                status = engine.broadcast(folder.status)
                if status in ("done", "diverged"):
                    return folder.summary()
                if status == "stopped" and not any(folder.checkpoints.glob("step-*")):
                    raise Problem(
                        f"{folder.checkpoints} is empty, but the run was stopped with a checkpoint: "
                        f"put it back, or start over with 'bigbatch train ... --fresh'"
                    )
                return _recorded(run, folder, engine, data_dir, checkpoint_minutes, quiet)
    finally:
        engine.stop()


def _recorded(
    run: Run, folder: Folder, engine: Engine, data_dir: Path | None, checkpoint_minutes: float, quiet: bool
) -> dict[str, Any]:
    """Whatever way a training ends, its folder says so."""
    book = folder if engine.rank == 0 else None
    try:
        if book:
            book.create(run)
            book.status = "running"
        engine.broadcast(None)  # nobody reads the folder before it is there
        with StopRequest() as stop_request:
            training = Training(run, folder, engine, data_dir, quiet)
            try:
                summary = training.to_the_end(stop_request, checkpoint_minutes)
            finally:
                training.close()
    except BaseException as error:
        with suppress(Problem):  # on a full disk not even this can be written, and the error at hand says why
            if book:
                book.status = "stopped" if isinstance(error, Stopped) else "failed"
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise Problem(
                f"{folder.path} could not be written ({error.strerror}): free space there, "
                f"then 'bigbatch resume {folder.path}'"
            ) from error
        raise
    if book:
        book.write("summary.json", dump_json(summary, indent=2))
        book.status = "done" if summary["diverged_at_step"] is None else "diverged"
    return summary


class Training:
    """A run brought to life on one rank, from its last checkpoint if it has one."""

    def __init__(self, run: Run, folder: Folder, engine: Engine, data_dir: Path | None, quiet: bool) -> None:
        self.run = run
        self.folder = folder
        self.engine = engine
        self.dataset = datasets.load(run.dataset, data_dir)
        self.batches = Batches(self.dataset, run.seed, filters.kept_indices(run.filter, self.dataset))
        self.clock = Clock(run, self.batches)
        rng.seed_torch(run.seed, rng.INITIAL_WEIGHTS)
        weights = torch.float64 if run.dtype == "float64" else torch.float32
        self.model = models.build(run.model, self.dataset).to(engine.device, weights)
        self.probes = probes.Probes(run.probes)

        self.progress = Progress()
        self.global_batch = 0
        self.history: list[dict[str, Any]] = []  # rows of tests and probes: what a batch size may be decided by
        self.epoch_loss_sum = 0.0
        self.seconds_in_steps = 0.0
        self.earlier_seconds = 0.0  # before this process
        self.started = time.perf_counter()
        state = self._restore()
        self.global_batch = self._next_global_batch()
        self.batches.check(batch_sizes.largest(run.global_batch))
        schedules.check(run, self.clock.total_epochs(self.global_batch))
        self.gradient = GlobalGradient(run, self.batches, self.model, engine)
        self.split: Split = choose_split(run, folder, engine, self.gradient, self.global_batch)
        self.gradient.wrap()
        self.optimizer = optim.build(run.optimizer, list(self.model.named_parameters()))
        self.needs_closure = getattr(self.optimizer, "needs_closure", False)  # it differentiates the loss by itself
        if self.needs_closure and (
            engine.world_size > 1 or run.selector.name != "all" or self.dataset.task == "language"
        ):
            raise Problem(
                f"optimizer '{run.optimizer.name}' with these options differentiates the whole batch's loss twice: "
                f"that goes in one process, with --set selector=all and without text"
            )
        if state:
            engine.restore(self.model, self.optimizer, state["optimizer"])
            if state["carried"] is not None:
                self.gradient.carried = HiddenState(self.global_batch)
                self.gradient.carried.restore(state["carried"], engine.device)
        self.metrics = MetricsWriter(folder.path / "metrics.jsonl") if engine.rank == 0 else None
        self.display = progress.choose(quiet or engine.rank != 0)

    def to_the_end(self, stop_request: StopRequest, checkpoint_minutes: float) -> dict[str, Any]:
        """Step until the budget is spent; test and save at the end of each epoch."""
        self.display.start(self.clock.total_epochs(self.global_batch), self._epochs())
        saved_at = time.monotonic()
        while not self._budget_spent():
            save_due = time.monotonic() - saved_at >= 60 * checkpoint_minutes
            try:
                batch, stop, save = self.step(lambda: stop_request.received, save_due)
                if batch.epoch_ends or self._budget_spent():
                    self._test()
                    save = True
            except Diverged as diverged:
                return self._summary(diverged.step)
            if save or stop:
                self.save()
                saved_at = time.monotonic()
            if stop and not self._budget_spent():
                raise Stopped(
                    f"stopped at step {self.progress.step}; 'bigbatch resume {self.folder.path}' continues it"
                )
        return self._summary(diverged_at_step=None)

    def step(self, stop_wanted: Callable[[], bool], save_wanted: bool) -> tuple[Batch, bool, bool]:
        """One global batch: its exact gradient, one optimizer step, one row of metrics.

        Gives the batch, and whether to stop and to save: one rank's wish is everybody's, and travels with the loss.
        """
        started = time.perf_counter()
        self.global_batch = self._next_global_batch()
        left = self.clock.samples_left(self.progress, self.global_batch)
        batch = self.batches.next(self.progress, self.global_batch, self.split, left)
        if self.dataset.train.lazy:
            self.gradient.expect([batch, self.batches.next(batch.after, self.global_batch, self.split)])
        position = self.clock.position(self.progress, self.global_batch, batch.count)
        lr = schedules.lr(position, self.run)
        for group in self.optimizer.param_groups:
            group["lr"] = lr

        self.optimizer.zero_grad(set_to_none=True)
        self.gradient.micro_gradients = (
            MicroGradients(self.model) if self.probes.see_micro_gradients(position) else None
        )
        sums = self.gradient.of(batch, position)
        own = [float(sums.loss), float(sums.hits), sums.kept, stop_wanted(), save_wanted]
        totals = torch.tensor(own, dtype=torch.float64, device=self.engine.device)
        loss_sum, hits, kept, stop, save = self.engine.sum(totals).tolist()
        loss = loss_sum / batch.count
        row = {
            "epoch": self.clock.epochs(batch.after, self.global_batch),
            "samples": batch.after.samples,
            "step": batch.after.step,
            "train_loss": loss,
            "train_accuracy": hits / batch.count,
            "lr": lr,
            "global_batch": batch.count,
            "kept": int(kept),
        }
        if not math.isfinite(loss):
            self._record(row | {"diverged": True})
            raise Diverged(batch.after.step)
        self.batch, self.position = batch, position
        with self.probes.around(self, position) as found:
            if self.needs_closure:
                self.optimizer.step(partial(self.gradient.loss, batch))  # type: ignore[arg-type]
            else:
                self.optimizer.step()

        self.progress = batch.after
        self.epoch_loss_sum += loss_sum
        self._record(row | found, remember=bool(found))
        self.seconds_in_steps += time.perf_counter() - started
        self.display.step(row, self.progress.samples / self.seconds_in_steps)
        return batch, stop > 0, save > 0

    def save(self) -> None:
        """Everything that an exact resume needs; all ranks learn whether rank 0 could write it."""
        carried = self.gradient.carried.gather(self.engine) if self.gradient.carried else None
        model, optimizer_state = self.engine.full_state(self.model, self.optimizer)
        failure = None
        if self.metrics:
            self.metrics.flush()
            state = {
                "progress": asdict(self.progress),
                "global_batch": self.global_batch,
                "optimizer": optimizer_state,
                "carried": carried,
                "epoch_loss_sum": self.epoch_loss_sum,
                "seconds": self._seconds(),
                "seconds_in_steps": self.seconds_in_steps,
            }
            try:
                checkpoint.save(self.folder.checkpoints, self.progress.step, self.folder.run_hash, model, state)
            except Problem as problem:
                failure = str(problem)
        failure = self.engine.broadcast(failure)
        if failure:
            raise Problem(failure)

    def close(self) -> None:
        self.gradient.close()
        self.display.close()
        if self.metrics:
            self.metrics.close()

    def _restore(self) -> dict[str, Any] | None:
        """Go back to the last checkpoint and drop the rows after it; gives the state that is still to be placed."""
        found = checkpoint.load(self.folder.checkpoints, self.folder.run_hash)
        state = None
        if found:
            path, state = found
            checkpoint.load_model(path, self.model)
            self.progress = Progress(**state["progress"])
            self.global_batch = state["global_batch"]
            self.epoch_loss_sum = state["epoch_loss_sum"]
            self.earlier_seconds = state["seconds"]
            self.seconds_in_steps = state["seconds_in_steps"]
        if self.engine.rank == 0:
            self.history = [row for row in self.folder.rewind(self.progress.step) if row.keys() - _STEP_KEYS]
        self.history = self.engine.broadcast(self.history)
        return state

    def _next_global_batch(self) -> int:
        """The batch of the moment. Text keeps its streams for an epoch, because they carry state."""
        if self.dataset.task == "language" and self.progress.offset:
            return self.global_batch
        epochs = self._epochs() if self.progress.offset else float(self.progress.epoch)
        total_epochs = self.run.epochs or math.inf  # steps are counted for a constant batch only, which never asks
        position = Position(epochs, total_epochs, self.global_batch, self.progress.step, self.progress.samples)
        global_batch = batch_sizes.at(position, self.history, self.run.global_batch)
        if global_batch % self.engine.world_size:
            fitting = max(global_batch - global_batch % self.engine.world_size, self.engine.world_size)
            raise Problem(
                f"global_batch {global_batch} does not divide over {self.engine.world_size} ranks: "
                f"use another number of ranks, or --set global_batch={fitting}"
            )
        return global_batch

    def _test(self) -> None:
        tested = evaluate(self.model, self.dataset, self.engine, 2 * self.split.micro_batch, self.gradient.cast)
        samples_in_epoch = self.progress.offset or self.batches.epoch_samples(self.global_batch)
        row = {
            "epoch": self._epochs(),
            "samples": self.progress.samples,
            "step": self.progress.step,
            "epoch_train_loss": self.epoch_loss_sum / samples_in_epoch,
            **tested,
            "seconds": self._seconds(),
        }
        if not math.isfinite(tested["test_loss"]):  # the last update was one too many, and no batch came to tell
            self._record(row | {"diverged": True})
            raise Diverged(self.progress.step)
        self._record(row, remember=True)
        self.display.evaluated(row)
        if self.progress.offset == 0:
            self.epoch_loss_sum = 0.0

    def _record(self, row: dict[str, Any], remember: bool = False) -> None:
        if remember:
            self.history.append(row)
        if self.metrics:
            self.metrics.add(row)

    def _summary(self, diverged_at_step: int | None) -> dict[str, Any]:
        last_test: dict[str, Any] = next((row for row in reversed(self.history) if "test_loss" in row), {})
        measures = {key: value for key, value in last_test.items() if key.startswith("test_")}
        return {
            **measures,
            "train_loss": last_test.get("epoch_train_loss"),
            "diverged_at_step": diverged_at_step,
            "epochs": self._epochs(),
            "steps": self.progress.step,
            "samples": self.progress.samples,
            "seconds": round(self._seconds(), 3),
            "samples_per_second": round(self.progress.samples / max(self.seconds_in_steps, 1e-9), 1),
            "peak_rss_mb": round(peak_rss_bytes() / 2**20, 1),
            "ranks": self.engine.world_size,
        }

    def _epochs(self) -> float:
        return self.clock.epochs(self.progress, self.global_batch)

    def _budget_spent(self) -> bool:
        return self.clock.spent(self.progress, self.global_batch)

    def _seconds(self) -> float:
        return self.earlier_seconds + time.perf_counter() - self.started
