"""Batch sizes: the global batch over time, as a pure function of the position and the metrics so far.

A part offers `at(position, history, config) -> int`, the size of the batch that begins at `position`, and
`largest(config) -> int`, the most it will ever ask for. `history` are the metrics rows written so far.
A part that changes batch and learning rate together sets `sets_lr = True` in its Config and offers
`lr(position, run) -> float`, which `schedules.lr` then calls in place of the schedule. A part that follows the
measurements of a probe names it in its Config: `needs_probe = "noise_scale"`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bigbatch import parts
from bigbatch.position import Position

History = Sequence[Mapping[str, Any]]


def at(position: Position, history: History, config: parts.Config) -> int:
    """Return the global batch that begins at `position`, whose own `global_batch` is not read."""
    return int(parts.find("batch_sizes", config.name).at(position, history, config))


def largest(config: parts.Config) -> int:
    """Return the largest global batch of the training, which memory and ranks must support."""
    return int(parts.find("batch_sizes", config.name).largest(config))
