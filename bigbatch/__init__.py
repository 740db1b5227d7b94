"""bigbatch: train neural networks at very large batch sizes without losing accuracy."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bigbatch import filters, optim, probes, schedules, selectors
    from bigbatch.advice import advise
    from bigbatch.run import Run
    from bigbatch.sweeps.critical_batch import critical_batch
    from bigbatch.training.loop import train
    from bigbatch.viewer.server import view

__version__ = "0.1.0"
__all__ = [
    "Run",
    "__version__",
    "advise",
    "critical_batch",
    "filters",
    "optim",
    "probes",
    "schedules",
    "selectors",
    "train",
    "view",
]

# torch takes seconds to import, `import bigbatch` must not: names and subpackages are imported at first use
_FUNCTIONS = {
    "Run": "bigbatch.run",
    "advise": "bigbatch.advice",
    "critical_batch": "bigbatch.sweeps.critical_batch",
    "train": "bigbatch.training.loop",
    "view": "bigbatch.viewer.server",
}
_SUBPACKAGES = ("filters", "optim", "probes", "schedules", "selectors")


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(_FUNCTIONS[name]), name)
    if name in _SUBPACKAGES:
        return importlib.import_module(f"bigbatch.{name}")
    raise AttributeError(f"module 'bigbatch' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
