"""A run whose weights do not change: a new model or the newest checkpoint, with one batch's gradient in `.grad`."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from bigbatch import parts
from bigbatch.artifacts.folder import Folder
from bigbatch.engines import Engine
from bigbatch.errors import Problem
from bigbatch.probes.measurement.contract import ProbeSet, Row, finish_after_step
from bigbatch.probes.measurement.read_only import preserve_model, preserve_tensors
from bigbatch.probes.measurement.record import to_json
from bigbatch.run import Run
from bigbatch.training.assembly import AssembledRun
from bigbatch.training.micro_batch import split_at_rest
from bigbatch.training.micro_gradients import MicroGradients


class RunAtRest(AssembledRun):
    """What a probe may read (`ProbeState`), without a training. Nothing is written anywhere."""

    def __init__(self, run: Run, engine: Engine, folder: Folder | None = None, data_dir: Path | None = None) -> None:
        super().__init__(run, engine, data_dir=data_dir, folder=folder)
        if not any(parameter.requires_grad for parameter in self.model.parameters()):
            raise Problem(f"model '{run.model.name}' has no trainable parameters to probe: name another model")
        self.history: list[Row] = []
        self.probes = ProbeSet(())
        global_batch = self.first_global_batch()
        self.add_optimizer(split_at_rest(self, folder, global_batch), probed=True)
        self.batch = self.batches.next(self.progress, global_batch, self.split)
        self.position = self.counter.position(self.progress, global_batch, self.batch.count)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr_at(self.position)
        self._compute_gradient()

    def measure(self, config: parts.Config) -> Row:
        """One probe's measurement. A step that it compares with is taken and undone."""
        part = parts.find("probes", config.name)
        answer = part.measure_at_rest(self, config) if hasattr(part, "measure_at_rest") else part.measure(self, config)
        if not isinstance(answer, Generator):
            row: Row = to_json(answer)
            return row
        next(answer)
        with preserve_tensors(list(self.model.parameters())):
            self.optimizer.step()
            return finish_after_step(answer)

    def _compute_gradient(self) -> None:
        """The next batch's gradient, as in training; BatchNorm's statistics do not change."""
        all_samples = self.run.selector.name == "all"
        self.gradient.micro_gradients = MicroGradients(self.model) if all_samples else None
        with preserve_model(self.model):
            self.gradient.compute(self.batch, self.position)
            gradients = [parameter.grad for parameter in self.model.parameters()]
        for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
            parameter.grad = gradient
