"""One global batch for the whole training (the baseline of every large-batch paper)."""

from __future__ import annotations

from pydantic import Field

from bigbatch import parts
from bigbatch.batch_sizes import History
from bigbatch.position import Position


class Config(parts.Config):
    """The number of samples over all ranks."""

    global_batch: int = Field(gt=0)


def at(position: Position, history: History, config: Config) -> int:
    """Return the global batch."""
    return config.global_batch


def largest(config: Config) -> int:
    """Return the global batch."""
    return config.global_batch
