"""A run whose weights stand still: a fresh model, or the newest checkpoint, with one batch's gradient in `.grad`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bigbatch import parts
from bigbatch.artifacts.folder import Folder
from bigbatch.engines import Engine
from bigbatch.errors import Problem
from bigbatch.probes._contract import Probes, finished, plain
from bigbatch.probes._untouched import moved, untouched
from bigbatch.run import Run
from bigbatch.training.assembly import AssembledRun
from bigbatch.training.micro_batch import split_at_rest
from bigbatch.training.micro_gradients import MicroGradients


class Standing(AssembledRun):
    """What a probe may look at (`State`), without a training. Nothing is written anywhere."""

    def __init__(self, run: Run, engine: Engine, folder: Folder | None = None, data_dir: Path | None = None) -> None:
        super().__init__(run, engine, data_dir=data_dir, folder=folder)
        if not any(parameter.requires_grad for parameter in self.model.parameters()):
            raise Problem(f"model '{run.model.name}' has no trainable parameters to probe: name another model")
        self.history: list[dict[str, Any]] = []
        self.probes = Probes(())
        global_batch = self.first_global_batch()
        self.add_optimizer(split_at_rest(self, folder, global_batch), probed=True)
        self.batch = self.batches.next(self.progress, global_batch, self.split)
        self.position = self.counter.position(self.progress, global_batch, self.batch.count)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr_at(self.position)
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

    def _differentiate(self) -> None:
        """The next batch's gradient, as the training would have it; BatchNorm's statistics do not move."""
        all_samples = self.run.selector.name == "all"
        self.gradient.micro_gradients = MicroGradients(self.model) if all_samples else None
        with untouched(self.model):
            self.gradient.compute(self.batch, self.position)
            gradients = [parameter.grad for parameter in self.model.parameters()]
        for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
            parameter.grad = gradient
