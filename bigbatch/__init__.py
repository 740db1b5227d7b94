"""bigbatch: train neural networks at very large batch sizes without losing accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bigbatch.advice import advise
    from bigbatch.run import Run
    from bigbatch.training.loop import train
    from bigbatch.viewer.server import view

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "advise", "train", "view"]


def __getattr__(name: str) -> Any:
    # torch takes seconds to import, `import bigbatch` must not. (A module called train.py would take the function's
    # name as soon as it is imported; the loop is in training.py.)
    if name == "Run":
        from bigbatch.run import Run

        return Run
    if name == "advise":
        from bigbatch.advice import advise

        return advise
    if name == "train":
        from bigbatch.training.loop import train

        return train
    if name == "view":
        from bigbatch.viewer.server import view

        return view
    raise AttributeError(f"module 'bigbatch' has no attribute '{name}'")
