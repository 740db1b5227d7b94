"""Optimizers: from gradients to steps, each a plain `torch.optim.Optimizer` that works in anybody's loop.

A part offers `build(config, named_parameters) -> torch.optim.Optimizer`. The training loop sets `group["lr"]` before
each step. An optimizer whose `needs_closure` is true takes `step(closure)`, with a closure that returns the loss.

    from bigbatch.optim import LARS

    optimizer = LARS(model.named_parameters(), lr=0.1, trust_coefficient=0.02, weight_decay=1e-4)
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch.nn import Parameter
from torch.optim import Optimizer

from bigbatch import parts

if TYPE_CHECKING:
    from bigbatch.optim.curvature import Curvature as Curvature
    from bigbatch.optim.lamb import LAMB as LAMB
    from bigbatch.optim.lars import LARS as LARS
    from bigbatch.optim.median_curvature import MedianCurvature as MedianCurvature
    from bigbatch.optim.percent_delta import PercentDelta as PercentDelta

_HOMES = {
    "Curvature": "curvature",
    "LAMB": "lamb",
    "LARS": "lars",
    "MedianCurvature": "median_curvature",
    "PercentDelta": "percent_delta",
}


def build(config: parts.Config, named_parameters: Iterable[tuple[str, Parameter]]) -> Optimizer:
    """The optimizer that a config names, over these parameters."""
    return parts.find("optim", config.name).build(config, list(named_parameters))


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"bigbatch.optim.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
