"""What is measured or traced: a model on synthetic samples, and an engine on some ranks that trains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bigbatch.errors import Problem
from bigbatch.run import Run


@dataclass(frozen=True)
class EngineConfiguration:
    """An engine on some ranks with a batch per rank. `settings` are options of the engine beside the model's."""

    engine: str
    ranks: int
    rank_batch: int
    settings: tuple[tuple[str, float], ...] = ()

    @property
    def label(self) -> str:
        options = "".join(f" {name}={value:g}" for name, value in self.settings)
        return f"{self.engine}{options} {self.ranks}x{self.rank_batch}"


@dataclass(frozen=True)
class MeasuredModel:
    """A model, the shape of its samples, and the options of the engines that train it."""

    name: str
    options: Mapping[str, Any]
    sample_shape: tuple[int, ...]
    classes: int
    engine_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def run(self, configuration: EngineConfiguration, **engine_options: Any) -> Run:
        """Return the run whose steps are taken: one micro-batch per rank, momentum, synthetic samples."""
        kind = configuration.engine
        engine = {"name": kind, **self.engine_options.get(kind, {}), **dict(configuration.settings), **engine_options}
        global_batch = configuration.ranks * configuration.rank_batch
        shapes = {"sample_shape": list(self.sample_shape), "classes": self.classes, "samples": global_batch}
        return Run(
            name="measured",
            dataset={"name": "synthetic", **shapes},
            model={"name": self.name, **self.options},
            global_batch=global_batch,
            micro_batch=configuration.rank_batch,
            optimizer={"name": "momentum", "lr": 1e-6},  # weights hardly move: the last step is as the first
            engine=engine,
            steps=1,
        )

    def gradient_bytes(self) -> int:
        """Build the model once, which also checks that it can be built, and return the size of its gradients."""
        from bigbatch.scaling.shapes import build_model

        model, _ = build_model(self.name, self.options, self.sample_shape, self.classes, samples=1)
        sizes = [one.numel() * one.element_size() for one in model.parameters() if one.requires_grad]
        if not sizes:
            raise Problem(f"model '{self.name}' has no trainable parameter: name another model")
        return sum(sizes)
