"""Optimizers: from gradients to steps, each a plain `torch.optim.Optimizer` that works in anybody's loop.

A part offers `build(config, named_parameters) -> torch.optim.Optimizer`, or `build(config, model)` where its Config has
`takes_model`, because what a tensor is for decides its update. The training loop sets `group["lr"]` before
each step. An optimizer that `needs_closure` takes `step(closure)`, with a closure that returns the loss. One that
`HasModes` evaluates the model at other weights than it trains it at.

    from bigbatch.optim import LARS

    optimizer = LARS(model.named_parameters(), lr=0.1, trust_coefficient=0.02, weight_decay=1e-4)
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pydantic import Field
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from bigbatch import parts

if TYPE_CHECKING:
    from bigbatch.optim.curvature import Curvature as Curvature
    from bigbatch.optim.lamb import LAMB as LAMB
    from bigbatch.optim.lars import LARS as LARS
    from bigbatch.optim.median_curvature import MedianCurvature as MedianCurvature
    from bigbatch.optim.muon import Muon as Muon
    from bigbatch.optim.percent_delta import PercentDelta as PercentDelta
    from bigbatch.optim.soap import SOAP as SOAP

_MODULES = {
    "Curvature": "curvature",
    "LAMB": "lamb",
    "LARS": "lars",
    "MedianCurvature": "median_curvature",
    "Muon": "muon",
    "PercentDelta": "percent_delta",
    "SOAP": "soap",
}


class TorchConfig(parts.Config):
    """The options that all of torch's optimizers have; weight decay is L2, added to the gradient."""

    lr: float = Field(0.1, ge=0, description="the learning rate; a schedule may scale, warm up and decay it")
    weight_decay: float = Field(0.0, ge=0, description="L2: added to the gradient, times the weights")


def builder_for(
    optimizer: Callable[..., Optimizer], **fixed_options: Any
) -> Callable[[parts.Config, Sequence[tuple[str, Parameter]]], Optimizer]:
    """Return the function `build` of an optimizer whose Config names options as its constructor does."""

    def build(config: parts.Config, named_parameters: Sequence[tuple[str, Parameter]]) -> Optimizer:
        return optimizer(named_parameters, **config.model_dump(exclude={"name"}), **fixed_options)

    return build


@runtime_checkable
class HasModes(Protocol):
    """An optimizer like Schedule-Free ones, whose model has other weights in training than in evaluation.

    `build` returns it in training mode, and so are its checkpoints.
    """

    def train(self) -> None:
        """Give the model the weights to compute gradients at."""

    def eval(self) -> None:
        """Give the model the weights to evaluate and use."""


def build(config: parts.Config, trained: Module | Iterable[tuple[str, Parameter]]) -> Optimizer:
    """Build the optimizer that a config names, over a model or named parameters."""
    if not isinstance(trained, Module):
        trained = list(trained)
    elif not config.takes_model:
        trained = list(trained.named_parameters())
    optimizer: Optimizer = parts.find("optim", config.name).build(config, trained)
    if isinstance(optimizer, HasModes):
        optimizer.train()
    return optimizer


def needs_closure(optimizer: Optimizer) -> bool:
    """Whether `step` must be given a closure that returns the loss without calling backward()."""
    return bool(getattr(optimizer, "needs_closure", False))  # an attribute that torch's own do not have


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"bigbatch.optim.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
