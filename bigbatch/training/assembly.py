"""A run, assembled on one rank: the only place where the parts that it names are put together."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from bigbatch import batch_sizes, datasets, filters, models, optim, rng, schedules
from bigbatch.artifacts import checkpoint
from bigbatch.artifacts.checkpoint import TrainingState
from bigbatch.artifacts.folder import Folder
from bigbatch.datasets import Dataset
from bigbatch.engines import Engine
from bigbatch.errors import Problem
from bigbatch.position import Position, Progress
from bigbatch.run import Run
from bigbatch.training.batches import Batches, Split
from bigbatch.training.gradient import GlobalGradient
from bigbatch.training.hidden_state import HiddenState
from bigbatch.training.progress import EpochCounter


class AssembledRun:
    """Dataset, batches, model, gradient and optimizer of a run, from its newest checkpoint if the folder has one.

    Assembly has two stages, because the split of the batches may be timed in between: the constructor, then
    `add_optimizer`.
    """

    optimizer: Optimizer
    split: Split

    def __init__(self, run: Run, engine: Engine, *, data_dir: Path | None = None, folder: Folder | None = None) -> None:
        self.run = run
        self.engine = engine
        self.dataset = datasets.load(run.dataset, data_dir)
        _check_samples(run, self.dataset)
        self.batches = Batches(self.dataset, run.seed, filters.kept_indices(run.filter, self.dataset))
        self.counter = EpochCounter(run, self.batches)
        self.model = build_model(run, self.dataset, engine.device)
        self.restored = _load_checkpoint(folder, self.model) if folder else None
        self.progress = self.restored.progress if self.restored else Progress()
        self.batches.check(batch_sizes.largest(run.global_batch))
        self.gradient = GlobalGradient(run, self.batches, self.model, engine)

    def add_optimizer(self, split: Split, *, probed: bool = False) -> None:
        """Wrap the model for its engine and build the optimizer, with the state of the checkpoint."""
        self.split = split
        self.gradient.wrap(probed)
        self.optimizer = optim.build(self.run.optimizer, self.model)
        self.average = self._average_weights(self.run.ema_decay) if self.run.ema_decay else None
        # such an optimizer differentiates the loss by itself
        self.needs_closure = optim.needs_closure(self.optimizer)
        one_process = self.engine.world_size == 1 and self.dataset.task != "language"
        if self.needs_closure and not (one_process and self.run.selector.name == "all"):
            raise Problem(
                f"optimizer '{self.run.optimizer.name}' with these options differentiates the loss of the whole batch "
                f"twice: use one process, --set selector=all, and no text"
            )
        if self.needs_closure and (self.run.sam_radius or self.run.clip_norm):
            raise Problem(
                f"optimizer '{self.run.optimizer.name}' with these options differentiates the loss by itself: "
                f"use neither sam_radius nor clip_norm with it"
            )
        if self.restored:
            if self.average and self.restored.average:
                self.average.load_state_dict(self.restored.average)
            self.engine.restore(self.model, self.optimizer, self.restored.optimizer)
            if self.restored.hidden_state is not None:
                self.gradient.forward.hidden_state = HiddenState(self.restored.global_batch)
                self.gradient.forward.hidden_state.restore(self.restored.hidden_state, self.engine.device)

    def _average_weights(self, decay: float) -> AveragedModel:
        """The average a ← decay·a + (1 − decay)·w of the weights and BatchNorm's statistics after each step."""
        if self.engine.forward_is_collective:
            raise Problem("ema_decay needs whole weights, but the engine shards them: use --set engine=ddp")
        return AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)

    def first_global_batch(self) -> int:
        """The global batch of the checkpoint, or the one that the run begins with."""
        if self.restored:
            return self.restored.global_batch
        start = Position(epochs=0.0, total_epochs=self.run.epochs or 1.0, global_batch=0)
        return batch_sizes.at(start, [], self.run.global_batch)

    def lr_at(self, position: Position) -> float:
        """The learning rate that the run's schedule gives."""
        return schedules.lr(position, self.run)

    def close(self) -> None:
        """End the dataset's worker processes."""
        self.gradient.forward.close()


def _check_samples(run: Run, dataset: Dataset) -> None:
    """Refuse data that would train to a result without a meaning."""
    if not len(dataset.train) or not len(dataset.test) or 0 in dataset.sample_shape:
        sizes = f"{len(dataset.train)} training and {len(dataset.test)} test samples of shape {dataset.sample_shape}"
        raise Problem(f"dataset '{run.dataset.name}' has {sizes}: give it data to train and test on")
    for samples in (dataset.train, dataset.test) if dataset.task == "classify" else ():
        low, high = int(samples.labels.min()), int(samples.labels.max())
        if low < 0 or high >= len(dataset.classes):  # torch ignores a label of -100
            raise Problem(
                f"dataset '{run.dataset.name}' has labels from {low} to {high}, but its {len(dataset.classes)} classes "
                f"are numbered from 0 to {len(dataset.classes) - 1}: fix the labels"
            )


def build_model(run: Run, dataset: Dataset, device: torch.device) -> nn.Module:
    """The model with the initial weights of the run's seed."""
    rng.seed_torch(run.seed, rng.INITIAL_WEIGHTS)
    dtype = torch.float64 if run.dtype == "float64" else torch.float32
    return models.build(run.model, dataset).to(device, dtype)


def _load_checkpoint(folder: Folder, model: nn.Module) -> TrainingState | None:
    found = checkpoint.load(folder.checkpoints, folder.run_hash, folder.saved_step)
    if found is None:
        return None
    path, state = found
    checkpoint.load_model(path, model)
    return TrainingState.from_dict(state)
