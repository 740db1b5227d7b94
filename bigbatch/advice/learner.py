"""A model that is trained in order to measure it: a copy of a module, or a run that writes no files."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from bigbatch import engines, optim, parts, rng
from bigbatch.advice import learning_rates
from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem
from bigbatch.optim.lars import LARS
from bigbatch.position import Position
from bigbatch.probes.measurement.objective import Loss, ProbedModel, call_model, trainable_parameters
from bigbatch.probes.measurement.read_only import preserve_model, preserve_tensors
from bigbatch.probes.measurement.samples import TensorSamples, read_samples
from bigbatch.probing.run_at_rest import RunAtRest
from bigbatch.run import Run
from bigbatch.scaling_rules import peak_at
from bigbatch.schedules import Baseline
from bigbatch.training import batchnorm, micro_batch
from bigbatch.training.assembly import build_model
from bigbatch.training.batches import Split
from bigbatch.training.step import take_step, update_weights
from bigbatch.trust import trust_typed


class Learner:
    """A model with data and an optimizer. Batches are full ones: the rest at the end of an epoch is skipped."""

    of: str
    described: Run | None  # with the present batch; of a module only what a scaling rule reads
    probed: ProbedModel
    optimizer: Optimizer
    device: torch.device
    now: int  # the present global batch
    data_cap: int  # the largest batch that there are samples for
    batchnorm_group: int | None  # samples that BatchNorm normalises over; None: there is no BatchNorm
    whole_batch_at_once: bool  # without micro-batches, so that memory limits the batch
    micro_batch: int | None = None  # of larger batches; None where they are not split
    baseline: Baseline
    warmup_epochs: float  # at the present batch
    samples_per_epoch: int
    total_samples: float | None  # of the whole training, where that is known
    steps: int = 0  # of the whole training so far
    samples: int = 0
    waits_for_files: bool
    data_position: Any  # where in the data the next batch begins; assigning an earlier value goes back there

    def __init__(self) -> None:
        self.warnings: list[str] = []

    @property
    def model(self) -> nn.Module:
        return self.probed.model

    @property
    def epochs(self) -> float:
        return self.samples / self.samples_per_epoch

    @property
    def warmup_is_over(self) -> bool:
        return self.epochs >= self.warmup_epochs

    @property
    def trains_by_plain_gradient(self) -> bool:
        """Whether a step is along the gradient, or its momentum, in each layer."""
        return isinstance(self.optimizer, SGD | LARS)

    def warn_of_optimizer(self, name: str) -> list[str]:
        if self.trains_by_plain_gradient:
            return []
        return [
            f"the noise scale is that of the plain gradient, which {name} rescales: its best batch may be another; "
            "--branch measures it"
        ]

    def lr(self) -> float:
        """The learning rate of the next step at the present batch."""
        raise NotImplementedError

    def scale_options(self, batch: int) -> tuple[float, dict[str, Any]]:
        """The factor of the learning rate and other options of the optimizer at another batch, by its scaling rule."""
        run = self.described
        if run is None:  # an optimizer that the package has no name for
            return math.sqrt(batch / self.now), {}
        (lr, _), (scaled_lr, _) = peak_at(run, self.now), peak_at(run.at_batch(batch), batch)
        changes = run.changes_at_batch(batch)
        options = {change.field.removeprefix("optimizer."): change.after for change in changes}
        return scaled_lr / lr, {name: value for name, value in options.items() if name != "lr"}

    def skip_ahead(self, number: int) -> None:
        """Continue at another position in the data; the same number is the same position."""
        raise NotImplementedError

    def initialise(self, number: int) -> bool:
        """Replace the weights by newly drawn ones, as at the start of a training; False where that is not possible."""
        return False

    def find_micro_batch(self, largest_batch: int) -> None:
        """Choose the micro-batch for steps that are timed, where it is free to choose."""

    def close(self) -> None:
        """End worker processes."""

    def _train_on_next_batch(self, batch: int, lr: float) -> float:
        """Train on the next batch of this size and return its loss."""
        raise NotImplementedError

    def step(self, batch: int, lr: float | None = None) -> float:
        """Train on the next batch of this size and return its loss."""
        loss = self._train_on_next_batch(batch, self.lr() if lr is None else lr)
        self.steps += 1
        self.samples += batch
        return loss

    def _require_finite(self, loss: float, lr: float) -> AbstractContextManager[None]:
        if not math.isfinite(loss):
            raise Problem(
                f"the loss was not finite at step {self.steps + 1} with lr {lr:g}: give a lower learning rate, "
                f"or check the model and its data"
            )
        return nullcontext()

    @contextmanager
    def undo_steps(self) -> Iterator[None]:
        """Within it steps may be taken; afterwards weights, optimizer and data position are restored."""
        before = copy.deepcopy(self.optimizer.state_dict()), self.steps, self.samples, self.data_position
        with preserve_tensors([*self.model.parameters(), *self.model.buffers()]):
            try:
                yield
            finally:
                state, self.steps, self.samples, self.data_position = before
                self.optimizer.load_state_dict(state)
                self.optimizer.zero_grad(set_to_none=True)

    @property
    def counts_cpu_seconds(self) -> bool:
        """With one thread that waits for nothing, CPU seconds are those of an idle machine. On a busy one a long step
        is interrupted more than a short one, and wall-clock seconds would make large batches look slow."""
        return self.device.type == "cpu" and torch.get_num_threads() == 1 and not self.waits_for_files

    def clock(self) -> float:
        """Seconds for step times. It waits for a GPU, whose work may still be running."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.process_time() if self.counts_cpu_seconds else time.perf_counter()


@dataclass(frozen=True)
class ModuleTraining:
    """How a module is trained now."""

    optimizer: Any = "momentum"  # a name, a dict of options, or a class of torch's
    lr: float | None = None
    batch: int = 32
    warmup_epochs: float = 0.0
    epochs: float | None = None
    seed: int = 0


class ModuleLearner(Learner):
    """A copy of any module, trained with one forward and backward pass per batch."""

    whole_batch_at_once = True

    def __init__(self, model: nn.Module, loss: Loss, data: Any, training: ModuleTraining) -> None:
        super().__init__()
        trainable_parameters(model)
        self.of = type(model).__name__
        own = _copy_module(model).train()
        self.device = next(own.parameters()).device
        samples, self.warnings = read_samples(data)
        self.waits_for_files = not isinstance(samples, TensorSamples)
        self.probed = ProbedModel(own, loss, samples, training.seed)
        self.data_cap = self.samples_per_epoch = len(samples)
        self.now = training.batch
        if not 1 <= self.now <= self.data_cap:
            raise Problem(f"batch {self.now} is not between 1 and the {self.data_cap} samples: give another batch")
        self.batchnorm_group = self.now if batchnorm.layers(own) else None
        self.optimizer, self.described = _build_optimizer(training, own)
        self._lr = float(self.optimizer.param_groups[0]["lr"])
        self.warmup_epochs = training.warmup_epochs
        self.baseline = Baseline(self._lr, self.now, self.warmup_epochs)
        self.total_samples = None if training.epochs is None else training.epochs * self.samples_per_epoch
        self.data_position = 0, 0  # epoch, offset
        # drawn once per epoch, as in a training: it must not be part of the time of a step
        self._epoch_order = lru_cache(maxsize=2)(self._draw_order)
        self._check_loss()
        self.warnings += self.warn_of_optimizer(type(self.optimizer).__name__)

    def lr(self) -> float:
        epochs = (self.samples + self.now / 2) / self.samples_per_epoch
        return self._lr if epochs >= self.warmup_epochs else self._lr * epochs / self.warmup_epochs

    def skip_ahead(self, number: int) -> None:
        self.data_position = self.data_position[0] + 1 + number, 0

    def _train_on_next_batch(self, batch: int, lr: float) -> float:
        return update_weights(
            self.optimizer, lr, partial(self._compute_gradient, batch), lambda loss: self._require_finite(loss, lr)
        )

    def _compute_gradient(self, batch: int) -> float:
        epoch, offset = self.data_position
        if offset + batch > self.samples_per_epoch:
            epoch, offset = epoch + 1, 0
        indices = self._epoch_order(epoch)[offset : offset + batch]
        self.data_position = epoch, offset + batch
        inputs, targets = self.probed.fetch(indices)
        loss = self.probed.loss(call_model(self.model, inputs), targets).mean()
        loss.backward()
        return float(loss.detach())

    def _draw_order(self, epoch: int) -> Tensor:
        return rng.permutation(self.samples_per_epoch, self.probed.seed, epoch, rng.ORDER)

    def _check_loss(self) -> None:
        """A loss that sums over samples would make every gradient proportional to the batch."""
        once = self.probed.fixed_indices(8)
        with preserve_model(self.model, "eval"):
            value, twice = (self.probed.objective(indices).value() for indices in (once, torch.cat([once, once])))
        if not math.isfinite(value):
            raise Problem("the loss is not finite at the model's present weights: check the model and its data")
        if abs(value) > 1e-12 and abs(twice / value - 2) < 1e-3:
            raise Problem(
                "the loss is a sum over samples (twice the samples give twice the loss): return the mean over samples, "
                "or one loss per sample as reduction='none' does"
            )


def _copy_module(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:  # whatever a module's own __deepcopy__ may raise
        raise Problem(
            f"{type(model).__name__} cannot be copied ({error}), and advice trains a copy: "
            f"give a module that copy.deepcopy accepts"
        ) from error


def _build_optimizer(training: ModuleTraining, model: nn.Module) -> tuple[Optimizer, Run | None]:
    """From a name or a dict of options as in a run, or from a callable over parameters, like torch.optim.AdamW."""
    optimizer = training.optimizer
    options = {} if training.lr is None else {"lr": training.lr}
    described = None
    if isinstance(optimizer, str | dict | parts.Config):
        trust_typed(optimizer)
        about = {"name": optimizer} if isinstance(optimizer, str) else optimizer
        config = parts.configure("optim", about | options if isinstance(about, dict) else about)
        built: Optimizer = optim.build(config, model)
        described = Run(dataset="synthetic", model="mlp", global_batch=training.batch, optimizer=config, epochs=1)
    elif callable(optimizer):
        built = partial(optimizer, **options)(model.parameters())
    else:
        raise Problem(f"optimizer {optimizer!r} is neither a name nor a class: give one, like 'momentum' or AdamW")
    if optim.needs_closure(built):
        raise Problem("this optimizer differentiates the loss by itself: give another to measure with, like 'momentum'")
    return built, described


class RunLearner(Learner):
    """A recipe as training begins with it, or a run's folder at its newest checkpoint, which is only read."""

    whole_batch_at_once = False

    def __init__(self, run: Run, folder: Folder | None = None, data_dir: Path | None = None) -> None:
        super().__init__()
        self.run = engines.fit_run_to_ranks(run)
        self.of = str(folder.path) if folder else run.name
        self.at_rest = RunAtRest(self.run, engines.start(self.run.engine), folder, data_dir)
        self._folder = folder
        self.device = self.at_rest.engine.device
        self.probed = ProbedModel.of_run(self.at_rest)
        self.optimizer = self.at_rest.optimizer
        self.now = self.at_rest.batch.global_batch
        self.samples_per_epoch = self.data_cap = self.at_rest.batches.epoch_samples(self.now)
        self.waits_for_files = self.at_rest.dataset.train.lazy
        self._is_text = self.at_rest.dataset.task == "language"
        self._streams = self.now
        self.steps, self.samples = self.at_rest.progress.step, self.at_rest.progress.samples
        self._fastest_micro_batch: int | None = None
        self.micro_batch = self.at_rest.split.micro_batch
        self.batchnorm_group = self.micro_batch if self.at_rest.split.whole_groups else None
        self.described = self.run.with_settings([f"global_batch={self.now}"])
        self.baseline = learning_rates.baseline_of(self.run, self.now)
        self.warmup_epochs = learning_rates.warmup_epochs(self.run, self.now)
        self.total_epochs = self.at_rest.counter.total_epochs(self.now)
        self.total_samples = self.total_epochs * self.samples_per_epoch
        self.warnings += self._list_warnings()

    def lr(self) -> float:
        epochs = min((self.samples + self.now / 2) / self.samples_per_epoch, self.total_epochs)
        return self.at_rest.lr_at(Position(epochs, self.total_epochs, self.now, self.steps, self.samples))

    def skip_ahead(self, number: int) -> None:
        offset = number * self.now if self._is_text and number * self.now < self.samples_per_epoch // 2 else 0
        self._start_epoch(1 + number, offset)

    def initialise(self, number: int) -> bool:
        if self._folder:
            return False
        seed = (self.run.seed + number) % 2**63
        new = build_model(self.run.model_copy(update={"seed": seed}), self.at_rest.dataset, self.device)
        self.model.load_state_dict(new.state_dict())
        self.optimizer.state.clear()
        self.steps = self.samples = 0
        self._start_epoch(number)
        return True

    def find_micro_batch(self, largest_batch: int) -> None:
        """As `micro_batch=auto` does for a training; BatchNorm's groups and what the run sets are kept."""
        if self.batchnorm_group is None and self.run.micro_batch == "auto":
            self.micro_batch = self._fastest_micro_batch = micro_batch.choose(largest_batch, self._time_micro_batch)

    def close(self) -> None:
        self.at_rest.close()

    def _time_micro_batch(self, count: int) -> float:
        """By the clock that steps are timed with: another one might prefer another micro-batch."""
        started = self.clock()
        self.at_rest.gradient.forward.time_trial(count, self.now)
        return self.clock() - started

    def _train_on_next_batch(self, batch: int, lr: float) -> float:
        batches, offset = self.at_rest.batches, self.at_rest.progress.offset
        if (self._is_text and batch != self._streams) or batches.epoch_samples(batch) - offset < batch:
            self._start_epoch(1)
        self._streams = batch
        coming = batches.next(self.at_rest.progress, batch, self._split(batch))
        sums = take_step(
            self.at_rest,
            coming,
            self.at_rest.position,
            lambda sums: self._require_finite(float(sums.loss) / coming.count, lr),
            lr,
        )
        return float(sums.loss) / coming.count

    def _split(self, batch: int) -> Split:
        split = micro_batch.split_at_rest(self.at_rest, self._folder, batch)
        fastest = self._fastest_micro_batch
        return replace(split, micro_batch=min(fastest, batch)) if fastest else split

    def _start_epoch(self, ahead: int, offset: int = 0) -> None:
        progress = self.at_rest.progress
        self.data_position = replace(progress, epoch=progress.epoch + ahead, offset=offset), self._streams

    @property
    def data_position(self) -> Any:
        return self.at_rest.progress, self._streams

    @data_position.setter
    def data_position(self, position: Any) -> None:
        self.at_rest.progress, self._streams = position
        self.at_rest.gradient.forward.hidden_state = None

    def _list_warnings(self) -> list[str]:
        found = self.warn_of_optimizer(self.run.optimizer.name)
        if self._is_text:
            found.append("text is measured in single windows, each from an empty hidden state, unlike in training")
        if self.run.selector.name != "all":
            found.append(
                f"the noise scale is that of all samples, though selector '{self.run.selector.name}' uses some of them"
            )
        if self.run.global_batch.name != "constant":
            found.append(f"the batch changes during this training; {self.now} is its present value")
        if self.steps and self.epochs >= self.total_epochs:
            found.append(
                "this is the end of the training, where the noise scale is usually largest: for the whole training "
                "give the recipe, or see the noise scale over training"
            )
        return found
