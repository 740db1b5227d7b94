"""A run whose weights stand still: a fresh model, or the newest checkpoint, with one batch's gradient in `.grad`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from bigbatch import batch_sizes, datasets, filters, models, optim, parts, rng, schedules
from bigbatch.artifacts import checkpoint
from bigbatch.artifacts.folder import Folder
from bigbatch.engines import Engine
from bigbatch.errors import Problem
from bigbatch.position import Position, Progress
from bigbatch.probes._contract import Probes, finished, plain
from bigbatch.probes._untouched import moved, untouched
from bigbatch.run import Run
from bigbatch.training import batchnorm
from bigbatch.training.batches import Batches, Split
from bigbatch.training.gradient import GlobalGradient, MicroGradients
from bigbatch.training.progress import Clock

_GROUP = 128  # micro-batches where neither the run nor its folder says


class Standing:
    """What a probe may look at (`State`), without a training. Nothing is written anywhere."""

    def __init__(self, run: Run, engine: Engine, folder: Folder | None = None, data_dir: Path | None = None) -> None:
        self.run = run
        self.engine = engine
        self.dataset = datasets.load(run.dataset, data_dir)
        self.batches = Batches(self.dataset, run.seed, filters.kept_indices(run.filter, self.dataset))
        rng.seed_torch(run.seed, rng.INITIAL_WEIGHTS)
        weights = torch.float64 if run.dtype == "float64" else torch.float32
        self.model = models.build(run.model, self.dataset).to(engine.device, weights)
        if not any(parameter.requires_grad for parameter in self.model.parameters()):
            raise Problem(f"model '{run.model.name}' has no trainable parameters to probe: name another model")
        self.optimizer = optim.build(run.optimizer, list(self.model.named_parameters()))
        self.history: list[dict[str, Any]] = []
        self.probes = Probes(())
        self.progress, global_batch = self._restored(folder)
        self.batches.check(global_batch)
        self.clock = Clock(run, self.batches)
        micro_batch = self._micro_batch(folder, max(1, global_batch // engine.world_size))
        self.split = Split(engine.world_size, micro_batch, whole_groups=self._has_batchnorm())
        self.batch = self.batches.next(self.progress, global_batch, self.split)
        self.position: Position = self.clock.position(self.progress, global_batch, self.batch.count)
        for group in self.optimizer.param_groups:
            group["lr"] = schedules.lr(self.position, run)
        self.gradient = GlobalGradient(run, self.batches, self.model, engine)
        self.gradient.wrap(probed=True)
        self._differentiate()

    def ask(self, config: parts.Config) -> dict[str, Any]:
        """One probe's answer. A step that it wants to see is taken, and taken back."""
        part = parts.find("probes", config.name)
        if hasattr(part, "at_rest"):
            return plain(part.at_rest(self, config))
        answer = part.measure(self, config)
        if isinstance(answer, dict):
            return plain(answer)
        next(answer)
        with moved(list(self.model.parameters())):
            self.optimizer.step()
            return plain(finished(answer))

    def close(self) -> None:
        self.gradient.close()

    def _restored(self, folder: Folder | None) -> tuple[Progress, int]:
        found = checkpoint.load(folder.checkpoints, folder.run_hash) if folder else None
        if found is None:
            start = Position(epochs=0.0, total_epochs=self.run.epochs or 1.0, global_batch=0)
            return Progress(), batch_sizes.at(start, [], self.run.global_batch)
        path, state = found
        checkpoint.load_model(path, self.model)
        self.optimizer.load_state_dict(state["optimizer"])
        return Progress(**state["progress"]), state["global_batch"]

    def _has_batchnorm(self) -> bool:
        return bool(batchnorm.layers(self.model))

    def _micro_batch(self, folder: Folder | None, local_batch: int) -> int:
        noted = folder.resolved() if folder else {}
        settings = [self.run.batchnorm_group] if self._has_batchnorm() else []
        chosen = [
            size for size in (*settings, self.run.micro_batch, noted.get("micro_batch")) if size not in ("auto", None)
        ]
        return min(int(chosen[0]) if chosen else _GROUP, local_batch)

    def _differentiate(self) -> None:
        """The next batch's gradient, as the training would have it; BatchNorm's statistics do not move."""
        all_samples = self.run.selector.name == "all"
        self.gradient.micro_gradients = MicroGradients(self.model) if all_samples else None
        with untouched(self.model):
            self.gradient.of(self.batch, self.position)
            gradients = [parameter.grad for parameter in self.model.parameters()]
        for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
            parameter.grad = gradient
